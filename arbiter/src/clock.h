/* The clock that pages and instants are told by: CLOCK_MONOTONIC, in nanoseconds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CLOCK_H
#define AQ_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t aq_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline struct timespec aq_instant(uint64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

#endif
