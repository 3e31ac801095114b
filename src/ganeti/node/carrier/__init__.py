"""The carrier: moves the data of one disk, dump or script from a source to a sink.

    source ─► frames ═══ TLS ═══ frames ─► sink        two nodes, a program on each
    source ─► sink                                     one node, one program

`order.py` describes the task of a program, `program.py` carries it out. `frames.py` and
`greeting.py` are pure; `ends.py` has the sources and sinks, `connection.py` and `callers.py` the
network, `wires.py` the protocols between both ends.
"""
