"""The carrier: moves the data of one disk, dump or script from a source to a sink.

    source ─► frames ═══ TLS ═══ frames ─► sink        two nodes, a program on each
    source ─► sink                                     one node, one program

`order.py` says what a program has to do, `program.py` does it. `frames.py` and `greeting.py` are pure; `ends.py`
has the sources and sinks, `connection.py` and `callers.py` the network, `wires.py` how both ends talk.
"""
