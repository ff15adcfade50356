/* How late this node wakes a thread of ordinary priority, as those of tenants are: one that does nothing but sleep finds out. No tenant has
 * a say in it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PROBE_H
#define AQ_PROBE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  pthread_t thread;
  bool leaving;                /* atomic */
  uint64_t late_ns;            /* atomic */
  double mean_ns, mean_square; /* of some hundred latest sleeps; the thread's own */
} aq_probe;

int aq_probe_start(aq_probe *probe); /* 0, or an errno value */
void aq_probe_stop(aq_probe *probe);

/* How long the delay is that an instant lost to delays falls into: one of 2 ms counts for as much as a hundred of 20 us. */
uint64_t aq_probe_late(const aq_probe *probe);

#endif
