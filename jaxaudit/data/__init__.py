"""Data sets by name or path, as `Examples` or `Table`. Only this subpackage reads the disk; no JAX.

Whatever is missing, irregular, damaged, too large or of another kind is an `InputError` of every reader here, and of no
other type; `Raises` says only what a reader refuses beyond that. Writers raise `OSError` where nothing can be written.

A name or a path becomes `Examples` (arrays) or a `Table` (columns of numbers and categories) in `files.py`; overlap,
classes and preprocessing are here, too. `formats/`: a kind of file each; `tfds.py`: sets by name;
`own_table.py`: records of people; `deals.py`: what a deal left; `outputs/`: what a target said; `weights.py`: arrays by
name; `bank/`: shadow models that anybody trained; `scores/`: a number a record and model.

`__init__.pyi` lists what other rooms may use; of that, `__all__` has what users need, which the site documents.
"""

# pyright: reportUnsupportedDunderAll=false
import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "MISSING",
    "Column",
    "Examples",
    "Table",
    "align_classes",
    "align_dealt",
    "candidate_indices",
    "category_counts",
    "concatenate",
    "digits",
    "duplicates",
    "is_image",
    "join_tables",
    "load",
    "load_table",
    "one_hot",
    "ordinal",
    "prepare_images",
]
