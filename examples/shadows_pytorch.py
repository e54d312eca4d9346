"""Trains the shadow models of a bank of images with PyTorch: your own nn.Module, augmentation and loop.

    jaxaudit deal images.npz --out deal
    jaxaudit shadows plan --deal deal --out bank
    python shadows_pytorch.py bank deal/query.npz deal/holdout.npz

The images are `x` of each file, as `jaxaudit deal` writes them; their order and their labels are the bank's. A
calibration set comes last (--calibration), in a file of the same form.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

bank, *files = map(Path, sys.argv[1:])
images = np.concatenate([np.load(file)["x"] for file in files]).astype(np.float32)
# [records, height, width(, channels)] -> [records, channels, height, width]
inputs = torch.from_numpy(images / images.max()).reshape(*images.shape[:3], -1).permute(0, 3, 1, 2).contiguous()
labels = torch.from_numpy(np.load(bank / "labels.npy")).long()
classes = json.loads((bank / "bank.json").read_text())["classes"]
(bank / "outputs").mkdir(exist_ok=True)
membership, seeds = np.load(bank / "membership.npy", mmap_mode="r"), np.load(bank / "seeds.npy")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LazyConv2d(16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


for model, (members, seed) in enumerate(zip(membership, seeds, strict=True)):
    path = bank / "outputs" / f"{model:05}.npy"
    if path.exists():
        continue
    torch.manual_seed(int(seed))
    net, places = Net(), torch.from_numpy(np.flatnonzero(members))
    net(inputs[:2])  # gives the lazy layers their shapes
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(30):
        for batch in places[torch.randperm(len(places))].split(64):
            moved = torch.roll(inputs[batch], tuple(torch.randint(-1, 2, (2,)).tolist()), (2, 3))  # augmentation
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(moved), labels[batch]).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(batch) for batch in inputs.split(1024)]).numpy()
    # Whatever has this name counts, so a file gets it when it is whole.
    with (draft := path.with_suffix(".writing")).open("wb") as file:
        np.save(file, logits)
    os.replace(draft, path)
    correct = logits[members].argmax(axis=1) == labels.numpy()[members]
    print(f"model {model}: accuracy {correct.mean():.1%} on its training records")
