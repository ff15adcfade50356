/* Kernels that meet other kernels, as those of collectives do (sandbox/kernels/meet.ptx). */
#ifndef SIM_MEETING_H
#define SIM_MEETING_H

#include "engine.h"

/* It has come: writes its word. */
void sim_meeting_arrive(const struct sim_meeting *meeting);
/* Has the other one come? */
bool sim_meeting_holds(const struct sim_meeting *meeting);

#endif
