/* What must happen when the library is loaded: next to nothing, because it is loaded into every process.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "blocks.h"
#include "cards.h"
#include "pool.h"
#include "quota.h"
#include "tenant.h"

/* A forked child holds no memory of its parent's, and the locks of threads that do not exist in it are nobody's. */
static void in_child(void) {
  aq_quota_forget();
  aq_blocks_forget();
  aq_pools_forget();
  aq_cards_forget();
  aq_tenant_forget();
}

__attribute__((constructor)) static void start(void) { pthread_atfork(NULL, NULL, in_child); }
