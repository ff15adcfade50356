/* A lock between the threads of one process, never shared with another: it lies in private memory.
 * Three states after U. Drepper, "Futexes are tricky": 0 free, 1 held, 2 held with waiters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LOCK_H
#define AQ_LOCK_H

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
  uint32_t word;
} aq_lock;

static inline void aq_lock_acquire(aq_lock *lock) {
  uint32_t seen = 0;
  if (__atomic_compare_exchange_n(&lock->word, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
  while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0)
    syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline void aq_lock_release(aq_lock *lock) {
  if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* In the child of a fork: whoever held it does not exist here. */
static inline void aq_lock_reset(aq_lock *lock) { __atomic_store_n(&lock->word, 0, __ATOMIC_RELAXED); }

#endif
