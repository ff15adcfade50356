/* A file that stands for memory carries its exporter's pid as the owner that F_SETOWN sets, and the bucket as the signal of
 * F_SETSIG: both belong to the open file description, travel with it through sockets and forks, and mean nothing else to a
 * file without O_ASYNC. A reader in another pid namespace, or one that comes after the exporter has died, sees no owner:
 * then it is a stranger's memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#ifndef F_SETSIG
#define F_SETSIG 10
#define F_GETSIG 11
#endif

#define WORDS (sizeof((aq_usage_page *)0)->shares / sizeof(uint64_t))

/* ---- exporting ---- */

#define KEEPS_EXPORTS (UINT64_C(1) << AQ_SHARE_BUCKETS) /* in `exports`: its owner is none that knows nothing of that word */

static uint32_t living[AQ_SHARE_BUCKETS]; /* names in use, between aq_quota_enter and aq_quota_exit */

/* Bytes of the lower cards that the slot has exported; the upper entries are the host's memory. */
static uint64_t *exported(int slot, int card) { return &aq_slice.usage->slots[slot].exported[card]; }

static void change(int slot, const aq_charge *charge, bool more) {
  if (slot < 0 || charge->card < 0 || charge->card >= AQ_OVERFLOW_CARDS) return;
  if (more) __atomic_fetch_add(exported(slot, charge->card), charge->bytes, __ATOMIC_RELAXED);
  else __atomic_fetch_sub(exported(slot, charge->card), charge->bytes, __ATOMIC_RELAXED);
}

/* Says whether a bucket is charged for. Orders: an exporter clears the bit and then looks for locks, an importer locks and then
 * looks for the bit; at least one of them sees the other, and both are charged when both do. */
static void mark(int slot, int bucket, bool alive) {
  uint64_t *exports = &aq_slice.usage->slots[slot].exports;
  if (alive) __atomic_fetch_or(exports, KEEPS_EXPORTS | UINT64_C(1) << bucket, __ATOMIC_SEQ_CST);
  else __atomic_fetch_and(exports, ~(UINT64_C(1) << bucket), __ATOMIC_SEQ_CST);
}

/* A bucket of its own, as long as there is one. */
static int emptiest(void) {
  int best = 0;
  for (int bucket = 1; bucket < AQ_SHARE_BUCKETS; bucket++)
    if (living[bucket] < living[best]) best = bucket;
  return best;
}

aq_share aq_share_export(const aq_charge *charge) {
  int slot = aq_quota_enter(), bucket = emptiest();
  change(slot, charge, true);
  if (slot >= 0) {
    living[bucket]++;
    mark(slot, bucket, true);
  }
  aq_quota_exit();
  return (aq_share){slot, bucket};
}

static bool end(aq_share share, const aq_charge *charge, bool even_open) {
  int slot = aq_quota_enter();
  bool last = --living[share.bucket] == 0 && slot == share.slot;
  if (last) mark(slot, share.bucket, false);
  bool ends = even_open || !aq_presence_is_shared(share.slot, share.bucket, 1);
  if (ends) change(slot, charge, false);
  else living[share.bucket]++;
  if (!ends && last) mark(slot, share.bucket, true);
  aq_quota_exit();
  return ends;
}

void aq_share_end(aq_share share, const aq_charge *charge) {
  if (aq_share_is_ours(share)) end(share, charge, true);
}

bool aq_share_end_unless_open(aq_share share, const aq_charge *charge) {
  return !aq_share_is_ours(share) || end(share, charge, false);
}

void aq_share_forget(void) { memset(living, 0, sizeof living); }

/* ---- names in files ---- */

void aq_share_tag_file(int file, aq_share share) {
  int saved = errno;
  if (aq_share_is_ours(share)) {
    fcntl(file, F_SETOWN, (int)aq_slice.usage->slots[share.slot].pid);
    fcntl(file, F_SETSIG, share.bucket + 1);
  }
  errno = saved;
}

static int slot_of_pid(uint32_t pid) {
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) {
    const aq_usage_slot *s = &aq_slice.usage->slots[slot];
    bool same = s->pid == pid && s->pid_namespace == aq_slice.self.pid_namespace;
    if (same && __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE)) return slot;
  }
  return -1;
}

aq_share aq_share_of_file(int file) {
  int saved = errno;
  int pid = fcntl(file, F_GETOWN), sign = fcntl(file, F_GETSIG);
  errno = saved;
  if (pid <= 0 || sign <= 0 || sign > AQ_SHARE_BUCKETS) return AQ_NO_SHARE;
  return (aq_share){slot_of_pid((uint32_t)pid), sign - 1};
}

/* ---- names of handles ---- */

/* bits of the handle:48 | slot:8 | bucket:8, never 0 */
static uint64_t word_of(const void *handle, aq_share share) {
  const unsigned char *bytes = handle;
  uint64_t h = UINT64_C(14695981039346656037);
  for (int i = 0; i < AQ_HANDLE_SIZE; i++) h = (h ^ bytes[i]) * UINT64_C(1099511628211);
  return ((h >> 16) | 1) << 16 | (uint64_t)share.slot << 8 | (uint64_t)share.bucket;
}

uint64_t aq_share_publish(const void *handle, aq_share share) {
  if (!aq_share_is_ours(share)) return 0;
  uint64_t word = word_of(handle, share);
  for (size_t i = 0; i < WORDS; i++) {
    uint64_t none = 0;
    uint64_t *place = &aq_slice.usage->shares[i];
    if (__atomic_compare_exchange_n(place, &none, word, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return word;
    if (none == word) return word;
  }
  return 0;
}

void aq_share_withdraw(uint64_t word) {
  for (size_t i = 0; word && i < WORDS; i++) {
    uint64_t expected = word;
    __atomic_compare_exchange_n(&aq_slice.usage->shares[i], &expected, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
}

aq_share aq_share_of_handle(const void *handle) {
  uint64_t wanted = word_of(handle, (aq_share){0, 0}) >> 16;
  for (size_t i = 0; i < WORDS; i++) {
    uint64_t word = __atomic_load_n(&aq_slice.usage->shares[i], __ATOMIC_RELAXED);
    if (word >> 16 == wanted) return (aq_share){(int)(word >> 8 & 0xff), (int)(word & 0xff) % AQ_SHARE_BUCKETS};
  }
  return AQ_NO_SHARE;
}

/* ---- importing ---- */

static bool is_charged_for(aq_share share) {
  uint64_t exports = __atomic_load_n(&aq_slice.usage->slots[share.slot].exports, __ATOMIC_SEQ_CST);
  return !(exports & KEEPS_EXPORTS) || exports >> share.bucket & 1;
}

bool aq_share_open(aq_share share) {
  if (!aq_share_is_ours(share)) return false;
  aq_quota_enter();
  aq_presence_open_share(share.slot, share.bucket);
  bool charged = is_charged_for(share);
  if (!charged) aq_presence_close_share(share.slot, share.bucket);
  aq_quota_exit();
  return charged;
}

void aq_share_close(aq_share share) {
  if (!aq_share_is_ours(share)) return;
  aq_quota_enter();
  aq_presence_close_share(share.slot, share.bucket);
  aq_quota_exit();
}
