/* A short time slice for a thread that watches others' work: it needs little of the CPU, and while it waits for one a card is idle.
 *
 * From Linux 6.12 on a thread of the ordinary class may choose its slice, without a privilege and without more of the CPU. One that
 * wakes with a shorter slice than the running thread's takes its place. Older kernels take the call and ignore the slice.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_TIME_SLICE_H
#define ALIQUOT_TIME_SLICE_H

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AQ_SHORT_TIME_SLICE_NS UINT64_C(100000) /* the kernel takes none that is shorter */

/* The kernel's `struct sched_attr` in its first version: some C libraries declare it, most do not. */
typedef struct {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period; /* in nanoseconds */
} aq_scheduling;

/* Of the calling thread; policy and niceness stay. A thread of another class than the ordinary one keeps what it has, and so does one
 * in a container whose filter of system calls forbids this. */
static inline void aq_time_slice_shorten(void) {
  aq_scheduling now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) || now.policy != SCHED_OTHER) return;
  now.runtime = AQ_SHORT_TIME_SLICE_NS;
  syscall(SYS_sched_setattr, 0, &now, 0);
}

#endif
