/* What must happen when the library is loaded, and at the end: next to nothing, because it is loaded into every process.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "binding.h"
#include "blocks.h"
#include "cards.h"
#include "context.h"
#include "graph_memory.h"
#include "memory.h"
#include "overhead.h"
#include "physical.h"
#include "pool.h"
#include "preload.h"
#include "quota.h"
#include "returning.h"
#include "sharing.h"
#include "tenant.h"
#include "work.h"

/* A forked child holds no memory of its parent's, and the locks of threads that do not exist in it are nobody's. */
static void in_child(void) {
  aq_work_forget();
  aq_quota_forget();
  aq_blocks_forget();
  aq_pools_forget();
  aq_contexts_forget();
  aq_physical_forget();
  aq_share_forget();
  aq_imports_forget();
  aq_bindings_forget();
  aq_overhead_forget();
  aq_code_forget();
  aq_returns_forget();
  aq_residents_forget();
  aq_graph_memory_forget();
  aq_cards_forget();
  aq_tenant_forget();
}

__attribute__((constructor)) static void start(void) {
  pthread_atfork(NULL, NULL, in_child);
  aq_preload_keep();
}

/* What is killed instead is collected by others. */
__attribute__((destructor)) static void end(void) { aq_quota_leave(); }
