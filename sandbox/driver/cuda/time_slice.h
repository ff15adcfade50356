/* Asks for a short time slice for the calling thread, which then runs sooner after it is woken (from Linux 6.12 on). */
#ifndef SIM_TIME_SLICE_H
#define SIM_TIME_SLICE_H

void sim_time_slice_shorten(void);

#endif
