/* How late threads wake that sleep until an instant: the arbiter's own, and one of the ordinary class that does nothing else, as the
 * threads of tenants are. No tenant has a say in either.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LATENESS_H
#define AQ_LATENESS_H

#include <pthread.h>

#include "arbiter.h"

typedef struct {
  pthread_t thread;
  bool leaving;                 /* atomic */
  uint64_t late_ns;             /* atomic */
  double mean_ns, mean_square;  /* of some hundred latest sleeps; the thread's own */
} aq_probe;

void aq_lateness_count(aq_lateness *lateness, uint64_t late_ns);

int aq_probe_start(aq_probe *probe); /* 0, or an errno value */
void aq_probe_stop(aq_probe *probe);

/* How long the delay is that an instant lost to delays falls into: one of 2 ms counts for as much as a hundred of 20 us. */
uint64_t aq_probe_late(const aq_probe *probe);

#endif
