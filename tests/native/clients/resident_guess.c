/* Takes managed memory that is larger than the slice, again and again at the same address, while other threads advise on that address
 * before they are told of it: one by one, and in lists of ranges that another thread changes. Whatever they come upon, blocks that
 * were kept on the host must still be. Prints how often one was not.
 *
 *   resident_guess MEETINGS BYTES SLICE
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

#define BLOCK ((size_t)2 << 20)
#define GUESSERS 2
#define ON_HOST (-1)

enum { READ_MOSTLY = 1, PREFERRED = 2, LAST_PREFETCH = 4 };             /* attributes of ranges */
enum { SET_READ_MOSTLY = 1, UNSET_PREFERRED = 4, SET_ACCESSED_BY = 5 }; /* advice */

typedef struct {
  int type, id;
} location;

#define FUNCTIONS(F)                                                                                                   \
  F(cuInit, (unsigned)) F(cuDevicePrimaryCtxRetain, (void **, int)) F(cuCtxSetCurrent, (void *)) F(cuCtxSynchronize, (void)) \
  F(cuMemAllocManaged, (uint64_t *, size_t, unsigned)) F(cuMemFree_v2, (uint64_t)) F(cuMemAdvise, (uint64_t, size_t, int, int)) \
  F(cuMemPrefetchBatchAsync, (uint64_t *, size_t *, size_t, location *, size_t *, size_t, unsigned long long, void *)) \
  F(cuMemRangeGetAttribute, (void *, size_t, int, uint64_t, size_t))

FUNCTIONS(DECLARE)

static void *primary;
static size_t bytes, slice;
static uint64_t small, guessed; /* guessed: relaxed; where the memory was the last time */
static volatile uint64_t range; /* of the list: changed while it is read */
static atomic_bool over;
static atomic_uint met;

static void *guess(void *unused) {
  MUST(cuCtxSetCurrent(primary));
  for (unsigned i = 0; !over; i++) {
    uint64_t address = __atomic_load_n(&guessed, __ATOMIC_RELAXED);
    if (address && !cuMemAdvise(address + slice, bytes - slice, i & 1 ? SET_READ_MOSTLY : UNSET_PREFERRED, 0)) met++;
  }
  return unused;
}

static void *change_list(void *unused) {
  while (!over) {
    range = __atomic_load_n(&guessed, __ATOMIC_RELAXED) + slice;
    range = small;
  }
  return unused;
}

static void *use_list(void *unused) {
  location card = {.type = 1, .id = 0};
  size_t size = BLOCK, start = 0;
  MUST(cuCtxSetCurrent(primary));
  while (!over) {
    cuMemPrefetchBatchAsync((uint64_t *)&range, &size, 1, &card, &start, 1, 0, NULL);
    MUST(cuCtxSynchronize());
  }
  return unused;
}

static int attribute(int which, uint64_t address) {
  int value = 0;
  MUST(cuMemRangeGetAttribute(&value, sizeof value, which, address, 1));
  return value;
}

/* Kept there, not copied to a card that reads it, and not brought to one. */
static bool is_kept(uint64_t block) {
  return attribute(PREFERRED, block) == ON_HOST && !attribute(READ_MOSTLY, block) && attribute(LAST_PREFETCH, block) != 0;
}

static bool all_kept(uint64_t memory) {
  size_t kept = 0;
  for (size_t at = 0; at < bytes; at += BLOCK) kept += is_kept(memory + at);
  return kept >= (bytes - slice) / BLOCK + 1; /* another has the room of one block */
}

/* The list may just have blocks exchanged, once; advice of ours waits for that. */
static bool has_escaped(uint64_t memory) {
  if (all_kept(memory)) return false;
  MUST(cuMemAdvise(memory, bytes, SET_ACCESSED_BY, 0));
  return !all_kept(memory);
}

int main(int argc, char **argv) {
  pthread_t guessers[GUESSERS], changer, user;
  unsigned escapes = 0;
  uint64_t memory;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc != 4) return 2;
  unsigned meetings = (unsigned)atoi(argv[1]);
  bytes = (size_t)atoll(argv[2]);
  slice = (size_t)atoll(argv[3]);
  FUNCTIONS(LOOK_UP)
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&primary, 0));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuMemAllocManaged(&small, BLOCK, 1));
  range = small;
  for (int i = 0; i < GUESSERS; i++) pthread_create(&guessers[i], NULL, guess, NULL);
  pthread_create(&changer, NULL, change_list, NULL);
  pthread_create(&user, NULL, use_list, NULL);
  while (met < meetings) {
    MUST(cuMemAllocManaged(&memory, bytes, 1));
    __atomic_store_n(&guessed, memory, __ATOMIC_RELAXED);
    escapes += has_escaped(memory);
    MUST(cuMemFree_v2(memory));
  }
  over = true;
  for (int i = 0; i < GUESSERS; i++) pthread_join(guessers[i], NULL);
  pthread_join(changer, NULL);
  pthread_join(user, NULL);
  MUST(cuMemFree_v2(small));
  printf("%u\n", escapes);
  return 0;
}
