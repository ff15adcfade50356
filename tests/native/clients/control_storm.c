/* Publishes limits in a control page as fast as it can until its stdin is closed; every time all limits are one number.
 *   control_storm PAGE
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aliquot_control.h"

int main(int argc, char **argv) {
  static aq_control_page wanted;
  int file = argc > 1 ? open(argv[1], O_RDWR) : -1;
  aq_control_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return 1;
  wanted = *page;
  struct pollfd closed = {.fd = STDIN_FILENO, .events = POLLIN};
  printf("ready\n");
  fflush(stdout);
  for (uint64_t number = 1; number % 4096 || !poll(&closed, 1, 0); number++) {
    for (int i = 0; i < AQ_MAX_CARDS; i++) wanted.cards[i].memory_limit = number;
    aq_control_publish(page, &wanted);
  }
  return 0;
}
