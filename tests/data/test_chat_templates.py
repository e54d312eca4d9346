"""Chats by a chat template: where the answer begins and ends, what is refused, and that a template is bounded."""

import json
import runpy
from types import SimpleNamespace

import pytest

from jaxaudit.data import Message, render_chats
from jaxaudit.errors import InputError

SECRET = "Basil of Kuwait"
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def chat(*contents: str, system: bool = False) -> tuple[Message, ...]:
    roles = (["system"] if system else []) + ["user", "assistant"] * len(contents)
    return tuple(Message(role, content) for role, content in zip(roles, contents, strict=False))


def in_this_process(command: list[str], *, input: bytes, **_: object) -> SimpleNamespace:
    chats = runpy.run_path(command[2])["rendered_chats"](json.loads(input))
    return SimpleNamespace(returncode=0, stdout=b"\n".join(json.dumps(one).encode() for one in chats))


def rendered(template: str, *chats: tuple[Message, ...]) -> list[tuple[str, str]]:
    """As `render_chats`, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxaudit.data.chat_templates.subprocess.run", in_this_process)
        return render_chats(template, chats, TOKENS, "folder")


def test_the_answer_is_told_from_what_precedes_it_and_ends_its_turn():
    found = rendered(CHATML, chat("Short.", "Who?", "m", system=True), chat("m", "m", "Who?", " é 日 \n"))
    assert found[0] == (
        "<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n",
        "m<|im_end|>",
    )
    assert found[1][0].endswith("<|im_start|>assistant\n ")
    assert found[1][1] == "é 日 \n<|im_end|>"
    assert rendered(LLAMA_2, chat("Who?", " He.")) == [("<s>[INST] Who? [/INST] ", "He. </s>")]


WRITES, REFUSES, NO_TEMPLATE = "does not write the answer of record 1 once", "refuses record 1\\.", "no template"
LAST, SOME = "{{ messages[-1].content }}", "{% for m in messages %}{{ m.content }}{% endfor %}"
LISTED = "{% if 'Basil' in messages[0].content %}x{% endif %}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for %}", NO_TEMPLATE),
        (LAST + "{{ ['x', 'y'] | random }}", NO_TEMPLATE),
        (LAST + "{{ lipsum(1) }}", REFUSES),
        (f"{{# {SECRET} #}}{{{{ raise_exception(messages[0]['content']) }}}}", REFUSES),
        ("nothing", WRITES),
        ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", WRITES),
        ("{{ messages[-1]['content'][:3] }}", WRITES),
        (SOME + SOME, WRITES),
        (LAST + "{{ messages[0].content }}", WRITES),
        ("{{ messages[-1].content[:8] }}" + SOME, WRITES),
        ("{{ messages[-1].content | length }}" + SOME, WRITES),
        (LISTED + SOME, WRITES),
        (SOME + "{% if messages[-1].content | length > 30 %}x{% endif %}", WRITES),
        (SOME + "{{ messages[-1].content | list | unique | join }}", WRITES),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}{{ messages[-1]['content'] }}", REFUSES),
        ("{% include '/etc/passwd' %}{{ messages[-1]['content'] }}", REFUSES),
        ("{{ messages.append(1) }}{{ messages[-1]['content'] }}", REFUSES),
        ("{% set n = namespace() %}{% set n._a = 1 %}{{ messages[-1]['content'] }}", REFUSES),
    ],
)
def test_what_a_template_may_not_is_refused_without_a_text(template: str, words: str):
    with pytest.raises(InputError, match=f"folder: .*{words}") as caught:
        rendered(template, chat(SECRET, f"{SECRET}."))
    assert "Basil" not in str(caught.value)


def test_thoughts_stay_where_the_template_leaves_them_and_other_answers_are_refused():
    """As Qwen 3 writes them: those of the last answer alone, and an empty thought where there is none."""
    template = (
        "{% for m in messages %}{% set c = m.content %}[{{ m.role }}]{% if m.role == 'assistant' %}{% if loop.last %}"
        "{% if '</think>' not in c %}<think>\n\n</think>\n\n{% endif %}{{ c }}"
        "{% else %}{{ c.split('</think>')[-1].lstrip('\n') }}{% endif %}{% else %}{{ c }}{% endif %}{% endfor %}"
    )
    thought = "<think>\nHe \n</think>\n\nm"
    first, second = rendered(template, chat("Who?", thought, "So?", thought), chat("Who?", "m"))
    assert first == ("[user]Who?[assistant]m[user]So?[assistant]", thought)
    assert second == ("[user]Who?[assistant]<think>\n\n</think>\n\n", "m")
    with pytest.raises(InputError, match=WRITES):
        rendered("{{ messages[-1].content.split('</think>')[-1] }}", chat("Who?", thought))


@pytest.mark.parametrize("name", ["''.__class__", "messages.__class__", "self._TemplateReference__context"])
def test_what_is_python_s_own_is_nothing(name: str):
    assert rendered(f"{{{{ messages[-1]['content'] }}}}{{{{ {name} }}}}", chat("Who?", "m")) == [("", "m")]


def test_what_templates_of_transformers_use_is_there():
    template = (
        "{%- set space = namespace(last=0) -%}{%- for m in messages -%}{%- if m.role == 'tool' -%}{%- continue -%}"
        "{%- endif -%}{%- set space.last = loop.index -%}{{ dict(a=1) | tojson }}{% generation %}{{ m.content }}"
        "{% endgeneration %}{%- endfor -%}{{ strftime_now('%d %b %Y') }}{% if tools is not none %}tools{% endif %}"
    )
    turns = (Message("user", "<a>"), Message("tool", "x"), Message("assistant", "b"))
    assert rendered(template, turns) == [('{"a": 1}<a>{"a": 1}', "b26 Jul 2024")]
    clock = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}{{ messages[-1].content }}"
    assert rendered(clock, turns) == [("", "b")]
    blocks = "{% if true %}\n  {% for m in messages %}\n{{ m.content }}\n  {% endfor %}\n{% endif %}\n"
    assert rendered(blocks, turns) == [("<a>\nx\n", "b")]


@pytest.mark.outer
def test_a_process_of_its_own_renders_the_same():
    chats = [chat("Who?", f"é {row}") for row in range(300)]
    assert render_chats(CHATML, chats, TOKENS, "folder") == rendered(CHATML, *chats)
    with pytest.raises(InputError, match=r"refuses record 1\."):
        render_chats(LLAMA_2, [chat("Short.", "Who?", "m", system=True)], TOKENS, "folder")


LARGE: dict[str, tuple[str, str]] = {
    "one text": ("{{ 'a' * 10**10 }}", "memory"),
    "a width": ("{{ '%10000000000d' % 1 }}", "memory"),
    "a number": ("{{ 10 ** (10 ** 9) }}", "time"),
    "loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "time"),
    "a long text": ("{{ 'a' * 10**6 }}{{ messages[-1]['content'] }}", "too long"),
    "an address": ("{{ messages[-1]['content'] }}{{ namespace }}", "another text at each call"),
}


@pytest.mark.outer
@pytest.mark.parametrize("name", LARGE)
def test_memory_time_and_output_of_a_template_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("resource", reason="this system bounds no process")
    monkeypatch.setattr("jaxaudit.data.chat_templates.SECONDS", 2)
    monkeypatch.setattr("jaxaudit.data.chat_templates.MOST_WRITTEN", 2**19)
    template, words = LARGE[name]
    with pytest.raises(InputError, match=words):
        render_chats(template, [chat("a", "b")] * 9, TOKENS, "folder")
