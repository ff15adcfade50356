"""Tells the pods of a group's present run from those of runs that have ended.

A group's name is used again: the same manifest is applied each night, and yesterday's pods still lie there, Succeeded.
A pod that has done its work counts for its own run only, so that a worker that is started anew need not wait for it.

A run consists of the pods that have not finished, and of each finished pod that

- has the same controller as a pod of the run, or
- had not finished when the earliest pod of the run was made.

The second rule adds pods whose own creation is earlier, for which it is asked again. The clocks of the nodes that say
when a pod finished and of the API server that says when one was made are taken to agree within a second or so.
"""

import math
from collections.abc import Mapping

from aliquot.scheduler_ext.gang.member import Member


def of_earlier_runs(members: Mapping[str, Member]) -> frozenset[str]:
    """The UIDs of finished members of runs that have ended; those of the last run where all have finished."""
    done = {uid: one for uid, one in members.items() if one.finished is not None}
    if not done:
        return frozenset()
    alive = [one for uid, one in members.items() if uid not in done]
    began = min((one.created for one in alive), default=math.inf)
    controllers = {one.controller for one in alive if one.controller}
    left = done
    while True:  # fewer are left each time
        mine = {
            uid: one
            for uid, one in left.items()
            if one.controller in controllers or (one.finished or 0.0) > began
        }
        if not mine:
            return frozenset(left)
        left = {uid: one for uid, one in left.items() if uid not in mine}
        began = min(began, *(one.created for one in mine.values()))
        controllers |= {one.controller for one in mine.values() if one.controller}
