/* SPDX-License-Identifier: Apache-2.0 */
#include "waiting.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

#define POLL_NS UINT64_C(500000)

static void add(aq_waiting *waiting, const void *word, uint32_t seen, uint32_t flags) {
  waiting->words[waiting->count++] = (struct futex_waitv){.val = seen, .uaddr = (uintptr_t)word, .flags = FUTEX_32 | flags};
}

void aq_waiting_begin(aq_waiting *waiting, const uint32_t *own, uint32_t seen) {
  waiting->count = 0;
  waiting->overfull = false;
  add(waiting, own, seen, FUTEX_PRIVATE_FLAG);
}

void aq_waiting_add(aq_waiting *waiting, const void *word, uint32_t seen) {
  if (waiting->count > AQ_BELLS) waiting->overfull = true;
  else add(waiting, word, seen, 0);
}

/* Only for our own word, and not for long. */
static int poll(const aq_waiting *waiting, uint64_t until_ns) {
  uint64_t soon = aq_now_ns() + POLL_NS;
  struct timespec until = aq_instant(until_ns < soon ? until_ns : soon);
  const uint32_t *own = (const uint32_t *)(uintptr_t)waiting->words[0].uaddr;
  syscall(SYS_futex, own, FUTEX_WAIT_BITSET_PRIVATE, waiting->words[0].val, &until, NULL, FUTEX_BITSET_MATCH_ANY);
  return -2;
}

/* A word that cannot be read is a page that its tenant has cut short: whoever looks at all of them will find out. */
int aq_waiting_wait(aq_waiting *waiting, uint64_t until_ns) {
  if (waiting->polls || waiting->overfull) return poll(waiting, until_ns);
  struct timespec until = aq_instant(until_ns);
  long woken = syscall(SYS_futex_waitv, waiting->words, waiting->count, 0, &until, CLOCK_MONOTONIC);
  if (woken >= 0) return (int)woken;
  if (errno == ETIMEDOUT) return -1;
  if (errno == ENOSYS || errno == EPERM) waiting->polls = true; /* a filter of system calls says EPERM */
  return errno == EAGAIN || errno == EINTR ? -2 : poll(waiting, until_ns);
}
