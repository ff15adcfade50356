/* Has the calling thread run soon after it is woken, where the kernel does so for who asks for a short time slice (Linux 6.12). */
#ifndef SIM_PROMPTLY_H
#define SIM_PROMPTLY_H

void sim_promptly(void);

#endif
