/* The contexts that this process has made.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CONTEXT_H
#define AQ_CONTEXT_H

/* In the child of a fork. */
void aq_contexts_forget(void);

#endif
