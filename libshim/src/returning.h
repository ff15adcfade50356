/* Memory that the program has freed in stream order, and that is the card's until the stream gets there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_RETURNING_H
#define AQ_RETURNING_H

#include <stdbool.h>

#include "cuda_abi.h"
#include "quota.h"

/* What else is to be done then: called in the stream's context, or, if that has ended before, with `lives` false. */
typedef struct {
  void (*call)(uint64_t with, bool lives); /* NULL: nothing */
  uint64_t with;
} aq_ending;

/* Gives a charge back when the stream has come so far as it is now. False: that cannot be told. */
bool aq_return_later(const aq_charge *charge, aq_ending ending, CUstream stream);

/* Gives back what streams have freed by now. Cheap where there is none. True when there was some. */
bool aq_returns_collect(void);

/* How long a refusal is put off, because memory is on its way back. Zero at first, but for the stream that the memory asked
 * for is meant for; one that is never busy: none. */
typedef struct {
  CUstream stream;
  bool has_stream;
  uint64_t until_ns, moved_ns, pending;
} aq_patience;

/* Waits a moment. True: try again. False: nothing is on its way, or it is not getting on. */
bool aq_returns_await(aq_patience *patience);

/* Around a driver call that may destroy a context, in which our events are: nobody looks at them meanwhile. */
void aq_returns_pause(void);
void aq_returns_resume(void);

/* While paused: a context is gone, its events and what they stand for. */
void aq_returns_end_context(CUcontext context);

/* In the child of a fork. */
void aq_returns_forget(void);

#endif
