/* A tenant's two files as the arbiter has them. The control page is ours, and mapped. The usage page is the tenant's, who may
 * cut it short or fill it with noise at any moment: it is read with pread, and mapped only to have addresses for futexes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_FILES_H
#define AQ_FILES_H

#include "aliquot_pages.h"
#include "scheduler.h"

typedef struct {
  aq_control_page *control;
  int control_file; /* open as long as the page is mapped, as is `usage`: the more locks a tenant has the longer closing takes */
  char *bells; /* the usage page's first bytes; never touched */
  int usage;
  uint32_t slots;       /* the first ones, in which anybody was when all were last looked at */
  aq_usage_annex lines; /* as last read */
  aq_usage_annex dead;  /* the lines of slots whose owner was found dead */
  bool buried[AQ_MAX_SLOTS];
} aq_files;

/* What a tenant says, by card of the page. */
typedef struct {
  aq_report cards[AQ_MAX_CARDS];
  uint64_t busy_ns[AQ_MAX_CARDS];
  uint32_t bells[AQ_MAX_CARDS];
} aq_words;

/* 0, or an errno value. What is not a page of ours is EINVAL. */
int aq_files_open(aq_files *files, const char *control, const char *usage);
/* Returns at once: a thread closes them, for as long as the kernel looks at a tenant's locks. */
void aq_files_close(aq_files *files);

/* The place of a card in the control page; -1: it is not there. */
int aq_files_card(const aq_files *files, const char *uuid);

/* Reads what a tenant has had, and its bells. Returns NULL, or what is wrong with its page. */
const char *aq_files_read(aq_files *files, aq_words *words);

/* Adds what its processes have to do, as of `now`: of all, or of those in slots where there were any already. A process that
 * begins to work in another slot may not have rung: whether nothing is in flight is only told by a look at all. */
const char *aq_files_read_work(aq_files *files, bool all, uint64_t now, aq_words *words);

/* Sees which processes that say to have work have ended. */
void aq_files_bury(aq_files *files);

/* The address to wait at for a card's bell. */
const void *aq_files_bell(const aq_files *files, uint32_t card);

/* Lets the tenant in or keeps it out, under another number. */
void aq_files_set_gate(aq_files *files, uint32_t card, const aq_lease *lease);
void aq_files_extend(aq_files *files, uint32_t card, const aq_lease *lease);
void aq_files_tell(aq_files *files, uint32_t card, const aq_account *account);
void aq_files_beat(aq_files *files, uint64_t now);

/* Nobody leases any more. */
void aq_files_forsake(aq_files *files);

#endif
