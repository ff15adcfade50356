"""Says what is wrong with a cluster or a node, and what to do about it.

A check is data and a function (`check`): it looks at facts that were read once before (`cluster`, `node`) and tells
findings (`finding`). A fact that could not be read says why (`fact`), and no check that needs it is ever shown as ok.
The checks of a cluster and of a node are listed in `all_checks`; `docs/doctor.md` explains each.
"""
