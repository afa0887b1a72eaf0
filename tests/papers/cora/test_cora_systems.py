"""The named systems of paper 03 read what their names say."""

from mmlib.papers.cora.run import systems


def test_names_of_systems_say_what_they_read():
    texts = {"Sequence, CORA's rest": "sequence", "Sequence": "sequence", "VSE∞": "sequence",
             "Bag of phrases": "bag", "CORA": "graph", "CORA, gold graphs": "gold"}  # fmt: skip
    on_record = {one.system: one for one in systems.trained_systems("world")}
    on_record |= {one.system: one for one in systems.trained_systems("world_bert")}
    assert {name: on_record[name].text for name in texts} == texts
    assert (systems.SEQUENCE.text, systems.BAG.text) == ("sequence", "bag")
    assert (systems.SEQUENCE.system, systems.BAG.system) == tuple(texts)[:4:3]
