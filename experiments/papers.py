"""Every table and figure of the three papers, and why some of them are not done again."""

from typing import NamedTuple


class Item(NamedTuple):
    """A table or figure.

    Attributes:
        name: `Table 1`, as `summary.Row.item` names it.
        shows: what it shows.
        without: why there is no result, where none is committed.
    """

    name: str
    shows: str
    without: str = "its experiment has no committed result yet"


DRAWING = "a drawing without numbers"
PAPERS = {
    "liu2020": "Liu & Tsaftaris (2020)",
    "becker2022": "Becker & Liebig (2022)",
    "long2017": "Long, Bindschaedler & Gunter (2017)",
    "carlini2022": "Carlini et al. (2022)",
    "tong2025": "Tong et al. (2025)",
    "steinke2023": "Steinke, Nasr & Jagielski (2023)",
    "maini2024": "Maini, Jia, Papernot & Dziedzic (2024)",
    "tofu2024": "Maini, Feng et al. (2024)",
    "none": "none",
}
ITEMS = {
    "liu2020": (
        Item("Figure 1", "the question, drawn", DRAWING),
        Item("Table 1", "rho for eight targets; query MNIST, calibration SVHN"),
        Item("Figure 2", "example images of ACDC", "pictures of patients, without numbers"),
        Item(
            "Table 2",
            "rho for seven targets; query ACDC 3T, calibration ACDC 1.5T",
            "ACDC is given to those who register, and was not at hand; with it: `jaxaudit ks --query acdc:FOLDER@3.0 "
            "--calibration acdc:FOLDER@1.5 --model medical-cnn`",
        ),
    ),
    "becker2022": (
        Item("Table 1", "accuracy of every method, MNIST"),
        Item("Figure 1", "efficacy and its bound, MNIST"),
        Item("Figure 2", "efficacy of the whole class before and after, MNIST"),
        Item("Figure 3", "attack probability, MNIST"),
        Item("Figure 4", "efficacy against attack probability, MNIST"),
        Item("Table 2", "accuracy of every method, CIFAR-10"),
        Item("Figure 5", "efficacy and its bound, CIFAR-10"),
        Item("Figure 6", "efficacy of the whole class before and after, CIFAR-10"),
        Item("Figure 7", "attack probability, CIFAR-10"),
        Item("Figure 8", "efficacy against attack probability, CIFAR-10"),
    ),
    "long2017": (
        Item("Table 1", "three attacks on a network, Purchase"),
        Item("Figure 1", "accuracy of each attack against PDTP, record by record"),
        Item("Figure 2", "best of three attacks against PDTP"),
        Item("Figure 3", "correlation with PDTP by the number of measurements"),
        Item("Table 2", "the distance-based attack on six classifiers"),
        Item("Figure 4", "the same, record by record, Purchase"),
        Item("Figure 5", "the same, record by record, Adult"),
        Item(
            "Table 3",
            "which learners are training stable",
            "proofs, no numbers; tests try them by brute force, and some fail: see `experiments/stability.py`",
        ),
        Item("Figure 6", "the largest DTP while the riskiest records are removed"),
        Item("Figure 7", "one record's prediction over initialisations"),
        Item("Figure 8", "one record's prediction over training samples"),
    ),
}
