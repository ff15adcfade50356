/* The list has one entry at most. What the kernel marks is `futex_offset` bytes behind the entry, wherever that is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "robust_list.h"

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aliquot_usage.h"
#include "tenant.h"

#define NO_SLOT (-1)

static struct robust_list entry;
static struct robust_list_head head = {.list = {&head.list}};
static uint32_t thread; /* whose list it is; 0: nobody's */
static int marked = NO_SLOT;

/* Of a page without monitors it is memory of our own, which nobody reads. */
static uint32_t *word_of(int slot) { return aq_usage_monitor_of(aq_slice.usage, slot); }

/* The kernel may walk the list at any instant: it is empty while the offset changes. */
static void set_list(const uint32_t *word) {
  __atomic_store_n(&head.list.next, &head.list, __ATOMIC_SEQ_CST);
  if (!word) return;
  entry.next = &head.list;
  head.futex_offset = (long)((intptr_t)word - (intptr_t)&entry);
  __atomic_store_n(&head.list.next, &entry, __ATOMIC_SEQ_CST);
}

void aq_robust_list_begin(void) {
  aq_robust_list_forget();
  if (!syscall(SYS_set_robust_list, &head, sizeof head)) thread = (uint32_t)syscall(SYS_gettid);
}

void aq_robust_list_mark(int slot) {
  if (!thread || marked == slot) return;
  uint32_t *word = word_of(slot);
  __atomic_store_n(word, thread, __ATOMIC_SEQ_CST);
  set_list(word);
  marked = slot;
}

void aq_robust_list_unmark(void) {
  set_list(NULL);
  marked = NO_SLOT;
}

void aq_robust_list_forget(void) {
  aq_robust_list_unmark();
  thread = 0;
}
