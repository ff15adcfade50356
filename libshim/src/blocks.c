/* Linear probing at most half full, with backward shifting on removal, so that no tombstones pile up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>

#include "estimate.h"

#define STRIPES 64
#define FIRST_CAPACITY 128
#define SPINS 100

/* A block in half a cache line: with thousands of them, memory is what takes the time. */
typedef struct {
  uint64_t key;
  uint64_t bytes : 48, card : 8, kind : 8; /* card + 1, so that AQ_NO_CARD is 0 */
  void *detail;
  void *context;
} packed;

static_assert(sizeof(packed) == 32, "half a cache line");
static_assert(AQ_MEMORY_MAX < UINT64_C(1) << 48 && AQ_MAX_CARDS < 255, "a block fits its packing");

typedef struct {
  uint32_t busy; /* a lock held for a few loads and stores; growing is the longest */
  uint32_t count;
  uint64_t capacity; /* a power of two; 0 before the first block */
  packed *entries;
  char padding[40];
} stripe;

static_assert(sizeof(stripe) == 64, "neighbouring stripes share no cache line");

static stripe stripes[STRIPES] __attribute__((aligned(64)));

static packed pack(const aq_block *block) {
  return (packed){.key = block->key, .bytes = block->charge.bytes & AQ_MEMORY_MAX, .card = (block->charge.card + 1) & 0xff,
                  .kind = block->kind & 0xff, .detail = block->detail, .context = block->context};
}

static aq_block unpack(const packed *entry) {
  return (aq_block){.key = entry->key, .charge = {entry->bytes, (int)entry->card - 1}, .kind = entry->kind,
                    .detail = entry->detail, .context = entry->context};
}

static void enter(stripe *s) {
  for (int spins = 0; __atomic_exchange_n(&s->busy, 1, __ATOMIC_ACQUIRE); spins++)
    if (spins > SPINS) sched_yield();
}

static void leave(stripe *s) { __atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE); }

static uint64_t hash(int kind, uint64_t key) {
  uint64_t h = (key ^ (uint64_t)kind << 60) * UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 32;
}

/* The lower bits choose the stripe, the upper ones the place in it. */
static stripe *stripe_of(uint64_t h) { return &stripes[h % STRIPES]; }
static uint64_t home_of(const stripe *s, uint64_t h) { return (h / STRIPES) & (s->capacity - 1); }

static bool is(const packed *entry, int kind, uint64_t key) { return entry->kind == (unsigned)kind && entry->key == key; }

/* Where the block is, or the free place where it would be. The stripe has entries. */
static uint64_t find(const stripe *s, int kind, uint64_t key) {
  uint64_t at = home_of(s, hash(kind, key));
  while (s->entries[at].kind != AQ_BLOCK_NONE && !is(&s->entries[at], kind, key)) at = (at + 1) & (s->capacity - 1);
  return at;
}

static bool grow(stripe *s) {
  stripe bigger = {.capacity = s->capacity ? s->capacity * 2 : FIRST_CAPACITY};
  size_t size = bigger.capacity * sizeof(packed);
  int saved = errno;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved;
  if (memory == MAP_FAILED) return false;
  bigger.entries = memory;
  for (uint64_t i = 0; i < s->capacity; i++) {
    const packed *entry = &s->entries[i];
    if (entry->kind != AQ_BLOCK_NONE) bigger.entries[find(&bigger, entry->kind, entry->key)] = *entry;
  }
  if (s->entries) munmap(s->entries, s->capacity * sizeof(packed));
  s->capacity = bigger.capacity;
  s->entries = bigger.entries;
  return true;
}

static bool is_estimate(int kind) { return kind == AQ_BLOCK_IMAGE || kind == AQ_BLOCK_CODE; }

void aq_blocks_give(const aq_block *block) {
  if (is_estimate(block->kind)) aq_estimate_subtract(&block->charge);
  aq_quota_give(&block->charge);
}

bool aq_blocks_put(const aq_block *block) {
  stripe *s = stripe_of(hash(block->kind, block->key));
  assert(block->kind != AQ_BLOCK_NONE);
  enter(s);
  aq_block stale = {.charge.card = AQ_NO_CARD};
  bool room = (s->count + 1) * 2 <= s->capacity || grow(s);
  if (room) {
    packed *entry = &s->entries[find(s, block->kind, block->key)];
    if (entry->kind == AQ_BLOCK_NONE) s->count++;
    else stale = unpack(entry);
    *entry = pack(block);
  }
  leave(s);
  if (stale.charge.card != AQ_NO_CARD) aq_blocks_give(&stale);
  return room;
}

/* Empties a place and moves up those behind it which would no longer be found. */
static void remove_at(stripe *s, uint64_t hole) {
  uint64_t mask = s->capacity - 1;
  for (uint64_t at = (hole + 1) & mask; s->entries[at].kind != AQ_BLOCK_NONE; at = (at + 1) & mask) {
    uint64_t home = home_of(s, hash(s->entries[at].kind, s->entries[at].key));
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    s->entries[hole] = s->entries[at];
    hole = at;
  }
  s->entries[hole].kind = AQ_BLOCK_NONE;
  s->count--;
}

static bool look_up(aq_block_kind kind, uint64_t key, aq_block *out, bool take) {
  stripe *s = stripe_of(hash((int)kind, key));
  enter(s);
  uint64_t at = s->capacity ? find(s, (int)kind, key) : 0;
  bool found = s->capacity && s->entries[at].kind != AQ_BLOCK_NONE;
  if (found) *out = unpack(&s->entries[at]);
  if (found && take) remove_at(s, at);
  leave(s);
  return found;
}

bool aq_blocks_get(aq_block_kind kind, uint64_t key, aq_block *out) { return look_up(kind, key, out, false); }
bool aq_blocks_take(aq_block_kind kind, uint64_t key, aq_block *out) { return look_up(kind, key, out, true); }

void aq_blocks_each(aq_block_kind kind, bool (*visit)(const aq_block *block, void *data), void *data) {
  bool more = true;
  for (int i = 0; i < STRIPES && more; i++) {
    stripe *s = &stripes[i];
    enter(s);
    for (uint64_t at = 0; at < s->capacity && more; at++) {
      aq_block block = unpack(&s->entries[at]);
      if (block.kind == (int)kind) more = visit(&block, data);
    }
    leave(s);
  }
}

/* What blocks were charged, by card; of it, what was an estimate. */
typedef struct {
  uint64_t bytes[AQ_MAX_CARDS], estimated[AQ_MAX_CARDS];
} sums;

/* Under the stripe's lock: forgets blocks of the context. */
static void end_in_stripe(stripe *s, const void *context, sums *gone) {
  for (uint64_t at = 0; at < s->capacity;) {
    aq_block block = unpack(&s->entries[at]);
    bool ended = block.kind != AQ_BLOCK_NONE && block.context == context;
    if (ended && block.charge.card != AQ_NO_CARD) {
      gone->bytes[block.charge.card] += block.charge.bytes;
      if (is_estimate(block.kind)) gone->estimated[block.charge.card] += block.charge.bytes;
    }
    if (ended) remove_at(s, at); /* another block may have moved here: looks again */
    else at++;
  }
}

void aq_blocks_end_context(void *context) {
  sums gone = {{0}, {0}};
  for (int i = 0; i < STRIPES && context; i++) {
    enter(&stripes[i]);
    end_in_stripe(&stripes[i], context, &gone);
    leave(&stripes[i]);
  }
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    aq_estimate_subtract(&(aq_charge){.bytes = gone.estimated[card], .card = card});
    if (gone.bytes[card]) aq_quota_give(&(aq_charge){.bytes = gone.bytes[card], .card = card});
  }
}

void aq_blocks_move_context(void *from, void *to) {
  for (int i = 0; i < STRIPES && from; i++) {
    enter(&stripes[i]);
    for (uint64_t at = 0; at < stripes[i].capacity; at++) {
      packed *entry = &stripes[i].entries[at];
      if (entry->kind != AQ_BLOCK_NONE && entry->context == from) entry->context = to;
    }
    leave(&stripes[i]);
  }
}

/* A stripe that another thread of the parent was busy with may be growing: its entries may be unmapped already. */
void aq_blocks_forget(void) {
  for (int i = 0; i < STRIPES; i++) {
    if (stripes[i].entries && !stripes[i].busy) munmap(stripes[i].entries, stripes[i].capacity * sizeof(packed));
    stripes[i] = (stripe){.busy = 0};
  }
}
