"""All checks and tables of the device at hand, a GPU or a CPU: `python -m bench.device`.

The work is in pieces, and each writes a file when it ends: `results/device-DEVICE/PIECE.json`. A call runs the pieces
that have no result yet, and starts none that would end beyond `--minutes` (nine), so the same command, called again,
goes on. `--dry-run` lists the pieces and how long they take, `--piece` names some, `--again` measures anew. A library
that is not installed is left out, and the result says so.

- `floors`: what the device does at most, measured: bytes copied and products of matrices.
- `training NETWORK`: model-steps of `fit_many` beside PyTorch: a loop of models as it is, with each step as one CUDA
  graph, and compiled; and ensembles of `torch.func`, whose stacked models take one fused step. Adam; minibatches of 128
  for a 784-512-256-128-10 network (MLP), for two convolutions and two dense layers (CNN) and for ResNet-8 with group
  normalisation (ResNet), both on 32x32 pixels in three colours; minibatches of 256 for a 600-1024-512-100 network
  (Purchase). Records are random, and on the device; PyTorch has no data loader, and one graph for all models. Both
  sides multiply as their libraries do on a GPU when asked for speed (TF32); in rows with bfloat16 by mixed precision,
  PyTorch's by autocast. The models a batch and the form of convolutions are those that the library chooses. Compiling
  and choosing are not timed. First, both sides train the same weights on the same minibatches in full float32 and must
  end with the same loss.
- `leave one out`: an 836-64-10 network, plain gradient descent, at minibatches of 1, 10 and 32, beside a PyTorch loop.
- `adapters`: 16 and 64 adapters of rank 8 on a GPT-2-sized base, beside a loop of `peft`.
- `ks`: the Kolmogorov-Smirnov distance of a million numbers to another million, and its bootstrap.
- `gradient norms NETWORK`: the squared gradient norms of `bench.large_networks_torch`, in full float32.
- `command`: `jaxaudit ks` as a whole, as a user starts it, in seconds.
- `bank`: 256 models of Purchase for 100 epochs from nothing, compiling and choosing included.
- `tests`: what of the tests of kernels, ensembles and learners passes on this device in three minutes.

Promised, on a GPU: training 8 times (MLP, Purchase) and 1.3 times (CNN, ResNet) as fast as PyTorch's fastest form;
leaving one out 100 times, and 64 adapters 8 times, as fast as the loop as it is; gradient norms 1.2 times as fast as
any library; and two fifths of the counted floor where networks are dense and for `ks`. For a CPU nothing is promised
here.

The share of the floor is the least time of a model-step, by counting, over the measured time. The least time is the
longer of two: that of the counted products at the rate of a large product, and that of the counted bytes at the rate of
a copy, both measured in the same piece. `bench/device/counting.py` says what is counted.
"""
