/* Waiting for the first of several bells, or an instant. Where the kernel cannot wait for several (before Linux 5.16), or there are
 * more than it takes, they are looked at in short turns.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_WAITING_H
#define AQ_WAITING_H

#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>

#define AQ_BELLS 127 /* and one of our own */

typedef struct {
  struct futex_waitv words[AQ_BELLS + 1];
  uint32_t count;
  bool overfull;
  bool polls; /* there is no other way */
} aq_waiting;

/* The first word is the caller's own, of this process. */
void aq_waiting_begin(aq_waiting *waiting, const uint32_t *own, uint32_t seen);

/* A word that another process changes. */
void aq_waiting_add(aq_waiting *waiting, const void *word, uint32_t seen);

/* Returns the place of the word that was rung, the caller's own being 0; -1: the instant has come; -2: any word may have. */
int aq_waiting_wait(aq_waiting *waiting, uint64_t until_ns);

#endif
