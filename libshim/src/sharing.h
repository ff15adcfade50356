/* Which memory of one process of the tenant is open in another, so that it is charged once, and for as long as anyone has it.
 *
 * Whoever exports memory is charged for it. An importer finds out whether the exporter is of its own tenant: then it is
 * charged nothing and locks a byte of the usage page's file in the exporter's name, a lock that the kernel lets go when the
 * importer dies. The exporter's charge ends when it has given the memory up and that byte is not locked; when the exporter
 * dies first, its slot keeps what it has exported until then (ledger.c). What nobody of the tenant has exported is
 * charged to the importer: the memory lives on in it whatever becomes of the stranger.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SHARING_H
#define AQ_SHARING_H

#include "presence.h"
#include "quota.h"

#define AQ_HANDLE_SIZE 64

/* Names exported memory within the tenant: who exported it, and one of AQ_SHARE_BUCKETS of that process (presence.h), so that
 * memory of two buckets is told apart. slot < 0: none of this tenant's. */
typedef struct {
  int slot, bucket;
} aq_share;

#define AQ_NO_SHARE ((aq_share){-1, 0})

static inline bool aq_share_is_ours(aq_share share) { return share.slot >= 0; }

/* A new name for what is charged here, and its end. `aq_share_end_unless_open`: false, and nothing was ended, while any
 * process has memory of this name open. */
aq_share aq_share_export(const aq_charge *charge);
void aq_share_end(aq_share share, const aq_charge *charge);
bool aq_share_end_unless_open(aq_share share, const aq_charge *charge);

/* Writes the name to a file that will be passed on (its open file description remembers it) or reads it there. */
void aq_share_tag_file(int file, aq_share share);
aq_share aq_share_of_file(int file);

/* The same for a handle of 64 bytes that anybody may copy: a word on the usage page stands for it. 0: there is no room. */
uint64_t aq_share_publish(const void *handle, aq_share share);
void aq_share_withdraw(uint64_t word);
aq_share aq_share_of_handle(const void *handle);

/* The importer's side. `aq_share_open`: false, and nothing was opened, when its exporter is charged for it no more: it
 * has given it up, and only the file kept it. */
bool aq_share_open(aq_share share);
void aq_share_close(aq_share share);

/* In the child of a fork, which has exported nothing. */
void aq_share_forget(void);

#endif
