/* A small table, looked through: a process has a handful of contexts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_context.h"

#include <string.h>

#define CONTEXTS 64

static aq_core_context contexts[CONTEXTS];

aq_core_context *aq_core_context_of(CUcontext handle) {
  for (int i = 0; i < CONTEXTS; i++)
    if (contexts[i].handle == handle) return &contexts[i];
  return NULL;
}

aq_core_context *aq_core_context_add(const aq_core_context *wanted) {
  aq_core_context *context = aq_core_context_of(NULL);
  if (!context) return NULL;
  *context = *wanted;
  context->offset = context->fresh_offset = AQ_ANY_OFFSET;
  return context;
}

aq_core_context *aq_core_contexts(size_t *count) {
  *count = CONTEXTS;
  return contexts;
}

void aq_core_contexts_forget(void) { memset(contexts, 0, sizeof contexts); }
