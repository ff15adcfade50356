/* Bytes of this process's charges that are estimates, and the wait for their correction.
 * SPDX-License-Identifier: Apache-2.0 */
#include "estimate.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "aliquot_usage.h"
#include "allowance.h"
#include "cards.h"
#include "core_clock.h"
#include "ledger.h"

/* The agent looks twice a second and believes what it has seen twice (overhead.py): after this time it knows all it ever will. */
#define SETTLED_NS UINT64_C(2000000000)
#define LOOK_AGAIN_NS 20000000 /* a neighbour that frees memory wakes nobody */
#define TRIES 100 /* a neighbour may take what has come each time */

static uint64_t *estimated(int slot, int card) { return &aq_usage_parts_of(aq_slice.usage, slot)->estimated[card]; }

/* The slot's owner alone writes its word, and under the lock that makes its changes serial. */
static void change(const aq_charge *charge, bool more) {
  if (charge->card < 0 || charge->card >= AQ_OVERFLOW_CARDS || !charge->bytes) return;
  int slot = aq_quota_enter();
  if (slot >= 0) {
    uint64_t now = __atomic_load_n(estimated(slot, charge->card), __ATOMIC_RELAXED);
    uint64_t less = now > charge->bytes ? now - charge->bytes : 0;
    __atomic_store_n(estimated(slot, charge->card), more ? now + charge->bytes : less, __ATOMIC_RELAXED);
  }
  aq_quota_exit();
  if (more) __atomic_store_n(&aq_slice.usage->cards[charge->card].estimated_ns, aq_now_ns(), __ATOMIC_RELAXED);
}

void aq_estimate_add(const aq_charge *charge) { change(charge, true); }
void aq_estimate_subtract(const aq_charge *charge) { change(charge, false); }

/* All processes' estimates on a card; the page is the tenant's, but a sum must not overflow whatever it says. */
static uint64_t sum(int card) {
  uint64_t bytes = 0;
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) {
    if (!__atomic_load_n(&aq_slice.usage->slots[slot].owner, __ATOMIC_RELAXED)) continue;
    uint64_t one = __atomic_load_n(estimated(slot, card), __ATOMIC_RELAXED);
    bytes += one < AQ_MEMORY_MAX - bytes ? one : AQ_MEMORY_MAX - bytes;
  }
  return bytes;
}

/* Clocks of two processes may differ by a tick; a page on disk may be of another boot. */
static bool is_fresh(uint64_t then, uint64_t now) { return then && now + SETTLED_NS - then < 2 * SETTLED_NS; }

/* Whether the agent looks, and has not had the time to see what was estimated last. */
static bool is_in_doubt(int card) {
  uint64_t now = aq_now_ns();
  return is_fresh(__atomic_load_n(&aq_slice.usage->cards[card].estimated_ns, __ATOMIC_RELAXED), now) &&
         is_fresh(__atomic_load_n(&aq_slice.control->measured_ns, __ATOMIC_RELAXED), now);
}

static void wait_for_change(uint32_t sequence) {
  struct timespec time = {.tv_nsec = LOOK_AGAIN_NS};
  int saved = errno;
  syscall(SYS_futex, &aq_slice.control->sequence, FUTEX_WAIT, sequence, &time, NULL, 0);
  errno = saved;
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit) { return bytes <= limit && used <= limit - bytes; }

static bool await(int card, uint64_t bytes, unsigned *tries) {
  while (*tries < TRIES) {
    uint32_t sequence = __atomic_load_n(&aq_slice.control->sequence, __ATOMIC_ACQUIRE);
    aq_allowance terms = aq_allowance_of(card);
    uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card)), estimates = sum(card);
    if (fits(used, bytes, terms.usable)) return ++*tries;
    bool hopeful = fits(used > estimates ? used - estimates : 0, bytes, terms.usable) && is_in_doubt(card);
    if (!hopeful) return false;
    wait_for_change(sequence);
  }
  return false;
}

bool aq_estimate_await(CUdevice device, uint64_t bytes, unsigned *tries) {
  if (aq_tenant_mode() != AQ_GUARD || aq_enforcement() != AQ_ENFORCE_ENFORCE) return false;
  int card = aq_card_of_device(device);
  return card >= 0 && card < AQ_OVERFLOW_CARDS && await(card, bytes, tries);
}
