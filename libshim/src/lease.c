/* How the gate's word is read and waited for. All futexes are shared ones: the arbiter is another process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "work.h"

#define SILENT_NS INT64_C(60000000)
#define OVERRUN_NS INT64_C(2000000) /* by which work may outlast its lease, lest the card idle before the next */

/* Compared signed: the arbiter may have written after our clock was read. */
bool aq_lease_holds(int card, uint32_t gate, uint64_t now) {
  uint64_t heartbeat = __atomic_load_n(&aq_slice.control->heartbeat_ns, __ATOMIC_RELAXED);
  return gate && heartbeat && aq_core_leasable(card) && aq_work_is_seen() && (int64_t)(now - heartbeat) <= SILENT_NS;
}

uint32_t aq_lease_price(int card) {
  return aq_lease_holds(card, aq_lease_gate(card), aq_now_ns()) ? AQ_WHOLE_CARD : aq_core_cap(card);
}

uint64_t aq_lease_window_ns(int card) {
  return __atomic_load_n(&aq_slice.control->cards[card].window_us, __ATOMIC_RELAXED) * UINT64_C(1000);
}

int64_t aq_lease_end_ns(int card) {
  return (int64_t)__atomic_load_n(&aq_slice.control->cards[card].lease_end_ns, __ATOMIC_RELAXED) + OVERRUN_NS;
}

void aq_lease_wait(int card, uint32_t gate, uint64_t until_ns) {
  const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
  int saved = errno;
  syscall(SYS_futex, aq_lease_word(card), FUTEX_WAIT_BITSET, gate, &until, NULL, FUTEX_BITSET_MATCH_ANY); /* CLOCK_MONOTONIC */
  errno = saved;
}

void aq_lease_ring(int card) {
  uint32_t *bell = &aq_core_usage(card)->bell;
  int saved = errno;
  __atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  errno = saved;
}
