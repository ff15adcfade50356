/* Has the kernel mark a slot's word in the usage page when this process ends or executes another program: set_robust_list(2).
 * Whoever reads the page, from whatever pid namespace, sees that the owner is gone and need not ask for it.
 *
 * The kernel does it by thread, and to a thread's one list. The monitor's is ours: it lives as long as the process, and uses no
 * robust mutex. All below under the lock of the quota's slot (aq_quota_enter).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ROBUST_LIST_H
#define AQ_ROBUST_LIST_H

/* This thread's end is that of the process's work from now on. On a kernel without such lists nothing is marked. */
void aq_robust_list_begin(void);

/* Has the word of this slot marked at that end, before anything is said in it. */
void aq_robust_list_mark(int slot);

/* The slot has just been taken, or is about to be left: no word is marked. Who frees a slot (ledger.c) clears its word. */
void aq_robust_list_unmark(void);

/* In the child of a fork. */
void aq_robust_list_forget(void);

#endif
