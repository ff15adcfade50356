/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <errno.h>
#include <sys/prctl.h>

#include "aliquot_time_slice.h"
#include "clock.h"
#include "thread.h"

#define PERIOD_NS UINT64_C(10000000)
#define MOST_NS UINT64_C(10000000) /* that counts: a machine that was stopped is not busy */
#define MEMORY 128.0 /* sleeps, after which one counts for a third of the latest */

/* Returns how late it is. */
static uint64_t sleep_until(uint64_t ns) {
  struct timespec until = aq_instant(ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
  return aq_now_ns() - ns;
}

static void note(aq_probe *probe, uint64_t late_ns) {
  double late = (double)(late_ns < MOST_NS ? late_ns : MOST_NS);
  probe->mean_ns += (late - probe->mean_ns) / MEMORY;
  probe->mean_square += (late * late - probe->mean_square) / MEMORY;
  uint64_t weighted = probe->mean_ns > 0 ? (uint64_t)(probe->mean_square / probe->mean_ns) : 0;
  __atomic_store_n(&probe->late_ns, weighted, __ATOMIC_RELAXED);
}

static void *run(void *of) {
  aq_probe *probe = of;
  aq_time_slice_shorten();
  prctl(PR_SET_TIMERSLACK, 1);
  prctl(PR_SET_NAME, "aliquot-probe");
  while (!__atomic_load_n(&probe->leaving, __ATOMIC_RELAXED)) note(probe, sleep_until(aq_now_ns() + PERIOD_NS));
  return NULL;
}

int aq_probe_start(aq_probe *probe) {
  *probe = (aq_probe){0};
  return aq_thread_start(&probe->thread, false, run, probe);
}

void aq_probe_stop(aq_probe *probe) {
  __atomic_store_n(&probe->leaving, true, __ATOMIC_RELAXED);
  pthread_join(probe->thread, NULL);
}

uint64_t aq_probe_late(const aq_probe *probe) { return __atomic_load_n(&probe->late_ns, __ATOMIC_RELAXED); }
