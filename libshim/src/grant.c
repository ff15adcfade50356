/* The agent looks for wishes on the usage page and raises grants; every change of the control page changes its
 * `sequence`, which is what we wait on. The page is mapped read-only and shared: FUTEX_WAIT works, FUTEX_PRIVATE does not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grant.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allowance.h"
#include "core_clock.h"
#include "ledger.h"
#include "tenant.h"

#define WAIT_NS UINT64_C(1000000000)
#define GRANTER_ALIVE_NS UINT64_C(5000000000)
#define LOOKS 4 /* lower one grant, see that it was not used, raise another; and one that had begun before the wish */
#define TRIES 100 /* a neighbour may take what has come each time */
#define LOOK_AGAIN_NS 20000000 /* a neighbour that frees memory wakes nobody */

static void wish(int card, uint64_t bytes) {
  aq_usage_card *words = &aq_slice.usage->cards[card];
  __atomic_store_n(&words->wanted, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&words->wanted_ns, aq_now_ns(), __ATOMIC_RELEASE); /* who sees the time sees the wish */
}

/* Counts the agent's looks; returns whether it still looks. */
static bool agent_looks(aq_grant_wait *wait) {
  uint64_t looked = __atomic_load_n(&aq_slice.control->granter_ns, __ATOMIC_RELAXED), now = aq_now_ns();
  if (looked != wait->looked_ns) wait->looks++;
  wait->looked_ns = looked;
  return looked && (looked >= now || now - looked < GRANTER_ALIVE_NS);
}

static bool is_over(const aq_grant_wait *wait, uint64_t now) { return now >= wait->until_ns && wait->looks > LOOKS; }

static void wait_for_change(uint32_t sequence) {
  struct timespec time = {.tv_nsec = LOOK_AGAIN_NS};
  int saved = errno;
  syscall(SYS_futex, &aq_slice.control->sequence, FUTEX_WAIT, sequence, &time, NULL, 0);
  errno = saved;
}

bool aq_grant_await(int card, uint64_t bytes, aq_grant_wait *wait) {
  if (!wait->until_ns) wait->until_ns = aq_now_ns() + WAIT_NS;
  for (;;) {
    uint32_t sequence = __atomic_load_n(&aq_slice.control->sequence, __ATOMIC_ACQUIRE);
    aq_allowance terms = aq_allowance_of(card);
    uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card)), now = aq_now_ns();
    if (terms.usable >= terms.limit || bytes > terms.limit || used > terms.limit - bytes) return false;
    bool looks = agent_looks(wait), over = is_over(wait, now);
    if (bytes <= terms.usable && used <= terms.usable - bytes) return wait->tries++ < TRIES;
    wish(card, used + bytes);
    if (!looks || over) return false;
    wait_for_change(sequence);
  }
}
