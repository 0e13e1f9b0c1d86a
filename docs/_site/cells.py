"""Shows cells of tutorials as what they stand for: commands of a shell, and files."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

_LANGUAGES = {".py": "python", ".toml": "toml"}


def show_cells(app: Sphinx, document: nodes.document) -> None:
    """Takes the first line from cells that begin with `%%bash` or `%%writefile`, which the captions replace."""
    for cell in _containers(document, "cell"):
        for block in list(cell.findall(nodes.literal_block)):
            first, _, rest = block.astext().partition("\n")
            if first == "%%bash":
                _replace(block, rest, "bash")
            elif first.startswith("%%writefile "):
                _replace(block, rest, _LANGUAGES[Path(first.split()[-1]).suffix], first.split()[-1])
                for output in _containers(cell, "cell_output"):
                    output.parent.remove(output)


def _containers(node: nodes.Node, kind: str) -> list[nodes.container]:
    return [found for found in node.findall(nodes.container) if kind in found["classes"]]


def _replace(block: nodes.literal_block, text: str, language: str, caption: str = "") -> None:
    new = nodes.literal_block(text, text, language=language)
    if not caption:
        block.replace_self(new)
        return
    ids = [nodes.make_id(f"file-{caption}")]
    wrapper = nodes.container("", literal_block=True, classes=["literal-block-wrapper"], ids=ids)
    wrapper += [nodes.caption(caption, "", nodes.literal(caption, caption)), new]
    block.replace_self(wrapper)
