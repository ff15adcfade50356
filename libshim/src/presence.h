/* Proof that the owner of a slot still lives: a lock on one byte of the usage page's file, which the kernel lets go when
 * the process ends or executes another program, whatever pid namespace it lives in and whoever gets its number next.
 *
 * An owner that holds the lock says so in its slot, with its own owner word: what a former owner left there proves
 * nothing, nor does an interceptor that knows of no locks; then the pid decides alone (process.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PRESENCE_H
#define AQ_PRESENCE_H

#include <stdbool.h>
#include <sys/types.h>

#include "aliquot_pages.h"

/* The file that a page was mapped from. */
typedef struct {
  const char *path;
  dev_t device;
  ino_t inode;
} aq_page_file;

/* Opens the page's file to lock in, once. Without it (the path may be gone, the kernel too old) nobody is judged by locks.
 * This and what follows: one thread of the process at a time. */
void aq_presence_open(const aq_page_file *page);

/* Locks a slot's byte for this process. False: another process has it, so the slot is not to be taken. */
bool aq_presence_lock(int slot);
void aq_presence_unlock(int slot);

/* After the slot was taken: says that its owner holds the lock, if it does. */
void aq_presence_announce(aq_usage_page *page, int slot);

/* Whether locks tell if this owner of a slot lives. */
bool aq_presence_is_told(aq_usage_page *page, int slot, uint64_t owner);

/* If a slot's owner is certainly gone, locks the slot for its collector, who is killed as safely as any owner. */
bool aq_presence_claim(aq_usage_page *page, int slot, uint64_t owner, uint64_t collector);

/* Imports (sharing.h): each bucket of each slot has a byte as well, which all importers lock together. `count` buckets from
 * `bucket` on: whether this process or another has any of them. */
#define AQ_SHARE_BUCKETS 63
void aq_presence_open_share(int slot, int bucket);
void aq_presence_close_share(int slot, int bucket);
bool aq_presence_is_shared(int slot, int bucket, int count);

/* In the child of a fork, whose parent's the locks are, or when the page is done with. */
void aq_presence_forget(void);

#endif
