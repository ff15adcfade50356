/* Who a process is, beyond its number.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PROCESS_H
#define AQ_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  uint32_t pid;           /* in its own namespace */
  uint64_t pid_namespace; /* inode; 0 when /proc does not say */
  uint64_t start_time;    /* clock ticks since boot; 0 when /proc does not say */
  uint32_t image;         /* changes with every exec, and is that of all copies of us in one process */
} aq_process;

/* The calling process. */
aq_process aq_process_self(void);

/* The identity packed into the word that owns a slot; never 0. */
uint64_t aq_process_word(const aq_process *process);

/* Whether the owner of a slot is certainly gone, as seen by `self`: no process of that number, or a younger one, or a
 * zombie. A process of another pid namespace is never judged. */
bool aq_process_is_dead(uint64_t word, const aq_process *self);

#endif
