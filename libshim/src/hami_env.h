/* HAMi-core's environment: the limits of a process that has no control page.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_HAMI_ENV_H
#define AQ_HAMI_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot_pages.h"

#define AQ_HAMI_PATH_SIZE 4096
#define AQ_HAMI_PROBLEM_SIZE 384

typedef struct {
  bool present;  /* a limit is set */
  bool disabled; /* CUDA_DISABLE_CONTROL: pass everything through */
  uint64_t memory_limit[AQ_MAX_CARDS]; /* bytes by CUDA ordinal; 0: no limit */
  bool memory_of_card[AQ_MAX_CARDS];   /* by the card's own variable, CUDA_DEVICE_MEMORY_LIMIT_<card> */
  uint32_t core_percent[AQ_MAX_CARDS]; /* 1-100 by CUDA ordinal; 0: uncapped */
  char usage_path[AQ_HAMI_PATH_SIZE];  /* CUDA_DEVICE_MEMORY_SHARED_CACHE or the default */
  char problem[AQ_HAMI_PROBLEM_SIZE];  /* the first bad variable, its value and the remedy; "" when all are good */
} aq_hami_env;

/* Reads `environment` (as environ). With a problem the limits are not to be trusted: the caller hands out nothing. */
void aq_hami_read(char *const *environment, aq_hami_env *out);

/* Where the usage page's path holds another's file, the page lies beside it: the same name with ".aliquot" after it. */
void aq_hami_step_aside(aq_hami_env *env);

/* Makes an empty usage page at `path` unless something is there. Processes that race get one page between them: it
 * appears whole, by link(). Returns 0 or an errno. */
int aq_hami_create_usage(const char *path);

#endif
