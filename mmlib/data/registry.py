"""The data sets of the four papers: where they come from, on what terms, and how to get them."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.data.download import download, unpack

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Remote:
    """One file to download.

    path: where it goes inside the data set's folder; "." is the folder itself (archives only).
    inner: for an archive, the folder inside it that becomes `path`.
    sha256: None where the source publishes none.
    """

    url: str
    path: str
    archive: bool = False
    inner: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """One data set.

    papers: short names of the papers that use it (coherence, entailment, cora, links).
    layout: patterns inside its folder that are there when it is present; `|` parts alternatives.
    remotes: what `get` downloads; empty where the data must be fetched by hand.
    how: what to do by hand, for all of it or for the part that `get` cannot fetch.
    """

    name: str
    papers: tuple[str, ...]
    feeds: str
    source: str
    licence: str
    size: str
    layout: tuple[str, ...]
    remotes: tuple[Remote, ...] = ()
    how: str = ""

    @property
    def folder(self) -> Path:
        """Its folder inside the data folder."""
        return data_dir() / self.name

    def present(self) -> bool:
        """Whether every pattern of the layout finds something."""
        return all(
            any(any(self.folder.glob(pattern)) for pattern in patterns.split("|"))
            for patterns in self.layout
        )


ALL = ("coherence", "entailment", "cora", "links")
CLUE = f"{GITHUB}/klory/Cross-Modal-Coherence-for-Text-to-Image-Retrieval"
CLUE_COMMIT = "e78b55a6f604678357b6692ecb50a56915f39d6c"
CITE = f"{GITHUB}/malihealikhani/CITE/a331730326fe742cf6594078266709b862df95e5"
CXC = (
    f"{GITHUB}/google-research-datasets/Crisscrossed-Captions"
    "/7d6634be173a6f6a16ab1e61bebc217de8444513"
)
ECCV = f"{GITHUB}/naver-ai/eccv-caption/0be8d41a4e2d671ca5be730a32830b79fcfed793"
UD = f"{GITHUB}/UniversalDependencies/UD_English-EWT/r2.15"
FLICKR8K = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"
VIST = "https://visionandlanguage.net/VIST/json_files"
COCO = "http://images.cocodataset.org"
RECIPEQA = "https://vision.cs.hacettepe.edu.tr/files/recipeqa"

_SETS = (
    DataSet(
        name="flickr8k",
        papers=ALL,
        feeds="the flickr8k tier of all four notebooks",
        source="https://hockenmaier.cs.illinois.edu/8k-pictures.html "
        "(also on Kaggle: adityajn105/flickr8k)",
        licence="images from Flickr, each under its owner's terms; non-commercial research and "
        "education only",
        size="1.1 GB (download)",
        layout=(
            "Images/*.jpg|Flicker8k_Dataset/*.jpg",
            "captions.txt|**/Flickr8k.token.txt",
            "**/Flickr_8k.trainImages.txt",
        ),
        remotes=(
            Remote(f"{FLICKR8K}/Flickr8k_Dataset.zip", "Images", True, "Flicker8k_Dataset"),
            Remote(f"{FLICKR8K}/Flickr8k_text.zip", "Flickr8k_text", True),
        ),
        how="The download is a widely used mirror of the two archives that the authors send on "
        "request; read their terms first. The Kaggle copy has no split lists: add Flickr8k_text/.",
    ),
    DataSet(
        name="clue",
        papers=("coherence",),
        feeds="coherence labels of web captions (its images must be fetched by their URLs)",
        source="https://github.com/klory/Cross-Modal-Coherence-for-Text-to-Image-Retrieval",
        licence="repository marked CC BY-NC; images: their owners'",
        size="2 MB, without images",
        layout=("conceptual_train_dis.csv", "conceptual_test_dis.csv"),
        remotes=tuple(
            Remote(f"{CLUE}/{CLUE_COMMIT}/data/conceptual/{name}", name)
            for name in (
                "conceptual_train_dis.csv",
                "conceptual_test_dis.csv",
                "img2idxmap.json",
            )
        ),
        how="Images: fetch the column `url` into images/<number>.jpg, numbered by img2idxmap.json; "
        "many addresses are dead by now. The authors also link a shared folder in their README.",
    ),
    DataSet(
        name="cite",
        papers=("coherence",),
        feeds="coherence questions about recipe steps (CITE; the paper's CITE++ adds as many)",
        source="https://github.com/malihealikhani/CITE",
        licence="unknown (the repository states none)",
        size="0.8 MB, without images",
        layout=("data.csv",),
        remotes=(Remote(f"{CITE}/data/data.csv", "data.csv"),),
        how="Images: those of RecipeQA (data set recipeqa, or its images-qa/ here). CITE++: put "
        "q2-8_{train,test}_dis_11-08.csv here; the shared folder with them is named in the README "
        "of klory/Cross-Modal-Coherence-for-Text-to-Image-Retrieval.",
    ),
    DataSet(
        name="recipeqa",
        papers=("coherence", "links"),
        feeds="images of CITE; source of the RQA documents",
        source="https://hucvl.github.io/recipeqa/",
        licence="unknown; recipes and images: their owners'",
        size="unknown (several GB)",
        layout=("train.json", "images"),
        remotes=(
            *(Remote(f"{RECIPEQA}/{part}.json", f"{part}.json") for part in ("train", "val")),
            Remote(f"{RECIPEQA}/test.json", "test.json"),
            Remote(f"{RECIPEQA}/images.zip", "images", True),
        ),
    ),
    DataSet(
        name="sick",
        papers=("entailment",),
        feeds="sentence entailment in both directions; half of it goes back to Flickr8k captions",
        source="https://zenodo.org/records/2787612 (Marelli et al., LREC 2014)",
        licence="CC BY-NC-SA 3.0",
        size="2.4 MB",
        layout=("SICK.txt",),
        remotes=(Remote("https://zenodo.org/record/2787612/files/SICK.zip", ".", True),),
    ),
    DataSet(
        name="ud_english_ewt",
        papers=("cora",),
        feeds="gold dependency trees to test the caption parser",
        source="https://github.com/UniversalDependencies/UD_English-EWT (release 2.15)",
        licence="CC BY-SA 4.0 (annotations); the texts: their owners'",
        size="18 MB, 3 MB gzipped",
        layout=tuple(f"en_ewt-ud-{part}.conllu*" for part in ("train", "dev", "test")),
        remotes=tuple(
            Remote(f"{UD}/en_ewt-ud-{part}.conllu", f"en_ewt-ud-{part}.conllu")
            for part in ("train", "dev", "test")
        ),
    ),
    DataSet(
        name="karpathy",
        papers=("entailment", "cora"),
        feeds="captions and splits of Flickr30K and MS-COCO",
        source="https://cs.stanford.edu/people/karpathy/deepimagesent/",
        licence="unknown for the split files; captions: as their data sets",
        size="37 MB (download), 200 MB",
        layout=("dataset_coco.json", "dataset_flickr30k.json"),
        remotes=(
            Remote(
                "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
                ".",
                True,
            ),
        ),
    ),
    DataSet(
        name="flickr30k",
        papers=("entailment", "cora"),
        feeds="the photographs of Flickr30K and SNLI-VE",
        source="https://shannon.cs.illinois.edu/DenotationGraph/",
        licence="images from Flickr, each under its owner's terms; non-commercial research and "
        "education only",
        size="4.4 GB",
        layout=("Images/*.jpg",),
        how="Fill in the request form at the source; put the 31,783 photographs into Images/.",
    ),
    DataSet(
        name="mscoco",
        papers=("entailment", "cora", "links"),
        feeds="the photographs of MS-COCO (2014)",
        source="https://cocodataset.org",
        licence="annotations CC BY 4.0; images: Flickr's terms",
        size="19 GB",
        layout=("train2014/*.jpg", "val2014/*.jpg"),
        remotes=(
            Remote(f"{COCO}/zips/train2014.zip", "train2014", True, "train2014"),
            Remote(f"{COCO}/zips/val2014.zip", "val2014", True, "val2014"),
        ),
    ),
    DataSet(
        name="region_features",
        papers=("cora",),
        feeds="36 detected regions an image (BUTD), Flickr30K and MS-COCO",
        source="https://www.kaggle.com/datasets/kuanghueilee/scan-features",
        licence="unknown",
        size="unknown (tens of GB)",
        layout=("*/train_ims.npy|*/region_feats/train",),
        how="Download from Kaggle (an account is needed) and unpack f30k_precomp/ and "
        "coco_precomp/ here. The authors' own copy is linked in the README of "
        "vkhoi/cora_cvpr24: unpack its f30k/ and coco/ here. Or make your own from the "
        "photographs: `mmlib data features flickr30k --backbone fasterrcnn`.",
    ),
    DataSet(
        name="cc1m",
        papers=("cora",),
        feeds="pretraining pairs of one row of the paper (Conceptual Captions, 1M of 3M)",
        source="https://ai.google.com/research/ConceptualCaptions/",
        licence="text: free for any use with credit to Google; images: their owners'",
        size="0.5 GB of text; images by URL",
        layout=("Train*.tsv",),
        how="Download the training file at the source and fetch images by URL; which million the "
        "paper took is not stated.",
    ),
    DataSet(
        name="snli_ve",
        papers=("entailment",),
        feeds="image-text entailment, on Flickr30K photographs",
        source="https://github.com/necla-ml/SNLI-VE",
        licence="SNLI: CC BY-SA 4.0; images as flickr30k",
        size="unknown (a few hundred MB)",
        layout=("snli_ve_train.jsonl", "snli_ve_dev.jsonl", "snli_ve_test.jsonl"),
        how="Download the three .jsonl files linked at the source, or make them with its "
        "generator from snli_1.0.zip (https://nlp.stanford.edu/projects/snli/).",
    ),
    DataSet(
        name="text_pairs",
        papers=("entailment",),
        feeds="text-text entailment: XNLI, MRPC, RTE, STS-B, QQP and text simplification",
        source="https://gluebenchmark.com/tasks and https://cims.nyu.edu/~sbowman/xnli/",
        licence="per corpus; see the two pages",
        size="about 150 MB",
        layout=("MRPC", "RTE", "STS-B", "QQP"),
        how="Download the GLUE tasks and XNLI at the sources, one folder each. The paper's text "
        "simplification corpus is not named in the text that we could read.",
    ),
    DataSet(
        name="cxc",
        papers=("entailment",),
        feeds="graded similarity of MS-COCO captions and images (Crisscrossed Captions)",
        source="https://github.com/google-research-datasets/Crisscrossed-Captions",
        licence="see the repository",
        size="7 MB",
        layout=("sits_val.csv", "sits_test.csv"),
        remotes=tuple(
            Remote(f"{CXC}/data/sits_{part}.csv", f"sits_{part}.csv") for part in ("val", "test")
        ),
    ),
    DataSet(
        name="eccv_caption",
        papers=("entailment",),
        feeds="more true image-caption pairs of the MS-COCO test images, for the metrics",
        source="https://github.com/naver-ai/eccv-caption",
        licence="MIT",
        size="0.3 MB",
        layout=("eccv_image_to_caption.json", "eccv_caption_to_image.json"),
        remotes=tuple(
            Remote(f"{ECCV}/eccv_caption/data/eccv_{part}.json", f"eccv_{part}.json")
            for part in ("image_to_caption", "caption_to_image")
        ),
    ),
    DataSet(
        name="links",
        papers=("links",),
        feeds="the paper's seven document sets: mscoco, dii, sis, dii-stress, rqa, diy, wiki",
        source="https://github.com/jmhessel/multi-retrieval (README, `How to reproduce`)",
        licence="as the data sets they were made from; DIY: not stated",
        size="unknown (several GB in all)",
        layout=("*/docs.json", "*/id2row.json", "*/features.npy"),
        how="Download the archives linked in that README and unpack each into a folder of its "
        "own here, so that docs.json, id2row.json and features.npy lie together.",
    ),
    DataSet(
        name="vist",
        papers=("links",),
        feeds="source of the DII and SIS documents (photo albums with captions and stories)",
        source="https://visionandlanguage.net/VIST/dataset.html",
        licence="images: Flickr owners' Creative Commons terms; text: see the page",
        size="0.2 GB of text; images about 300 GB, linked at the source",
        layout=("dii", "sis"),
        remotes=(
            Remote(f"{VIST}/description-in-isolation/DII-with-labels.tar.gz", "dii", True, "dii"),
            Remote(f"{VIST}/story-in-sequence/SIS-with-labels.tar.gz", "sis", True, "sis"),
        ),
    ),
    DataSet(
        name="word2vec",
        papers=("links",),
        feeds="300-d word vectors trained on Google News",
        source="https://code.google.com/archive/p/word2vec/",
        licence="unknown for the vectors (the project's code is Apache-2.0)",
        size="1.7 GB (download), 3.6 GB",
        layout=("GoogleNews-vectors-negative300.bin*",),
        how="Download GoogleNews-vectors-negative300.bin.gz from the link on that page, or get "
        "the same vectors with `python -m gensim.downloader --download word2vec-google-news-300`.",
    ),
    DataSet(
        name="glove",
        papers=("cora",),
        feeds="300-d word vectors (which of the GloVe files the paper used is not stated)",
        source="https://nlp.stanford.edu/projects/glove/",
        licence="PDDL 1.0",
        size="0.9 GB (download), 2.2 GB",
        layout=("glove.6B.300d.txt",),
        remotes=(Remote("https://nlp.stanford.edu/data/glove.6B.zip", ".", True),),
    ),
)
DATA_SETS = {item.name: item for item in _SETS}


def find(name: str) -> DataSet:
    """The data set of that name; raises DataError that lists the names."""
    if name not in DATA_SETS:
        raise DataError(f"no data set {name!r} (choose from {', '.join(DATA_SETS)})")
    return DATA_SETS[name]


def get(item: DataSet) -> list[Path]:
    """Download and unpack what can be fetched; files and folders already there are kept.

    Returns the paths that are now in place. Raises DownloadError, ArchiveError, and DataError
    where the data set can only be obtained by hand.
    """
    if not item.remotes:
        raise DataError(f"{item.name}: cannot be downloaded by a program. {item.how}")
    placed = []
    for remote in item.remotes:
        target = item.folder / remote.path
        if target.is_file() or (target.is_dir() and any(target.iterdir())):
            placed.append(target)
        elif remote.archive:
            packed = data_dir() / ".downloads" / Path(urlparse(remote.url).path).name
            download(remote.url, packed, sha256=remote.sha256)
            placed.append(unpack(packed, target, remote.inner))
            packed.unlink()
        else:
            placed.append(download(remote.url, target, sha256=remote.sha256))
    return placed
