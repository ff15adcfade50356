/* How late this machine wakes a sleeping thread: sleeps to every millisecond until its input ends, and prints the 99th percentile of
 * the delays in microseconds. What is measured beside it is to be believed only where this is small. Each millisecond counts: of one
 * that comes 300 late, the 300 that it missed are late as well.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PERIOD_NS 1000000
#define MOST 600000

static uint64_t delays_ns[MOST];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns how late it is. */
static uint64_t sleep_until(uint64_t when_ns) {
  struct timespec when = {(time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) continue;
  return now_ns() - when_ns;
}

static int has_ended(void) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(void) {
  size_t count = 0;
  for (uint64_t when = now_ns(); !has_ended() && count < MOST; when += PERIOD_NS) delays_ns[count++] = sleep_until(when);
  qsort(delays_ns, count, sizeof *delays_ns, by_value);
  printf("%.1f\n", count ? (double)delays_ns[count * 99 / 100] / 1000 : 0);
  return 0;
}
