/* A rank of two that train together, each on its own card and in its own pod: each step is a kernel, and one that meets the other
 * rank's, as those of collectives do.
 *
 *   rank=0  compute_us=2000  collective_us=200
 *   for_ms=2000          after so much time the first rank makes its last step
 *   words=FILE           memory that the ranks share
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program.h"

#define PAGE 4096
#define PORTABLE_AND_MAPPED 3

/* Where each rank says that its kernel has come, and which step is the last; 0: none yet. */
typedef struct {
  uint32_t arrived[2][16], last;
} meeting_place;

static volatile meeting_place *share(const char *path) {
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, PAGE)) fail(path, file);
  void *words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) fail("mmap", 1);
  CHECK(cuMemHostRegister_v2(words, PAGE, PORTABLE_AND_MAPPED));
  return words;
}

int main(int argc, char **argv) {
  start(argc, argv);
  uint64_t rank = option("rank", 0), for_ns = option("for_ms", 2000) * 1000000;
  volatile meeting_place *place = share(text_option("words", "words"));
  kernel compute = kernel_of(option("compute_us", 2000)), collective = meeting_of(option("collective_us", 200));
  stream own = new_stream();
  wait_to_begin();
  uint64_t begin_ns = now_ns();
  uint32_t step = 0;
  do {
    step++;
    if (!rank && now_ns() - begin_ns > for_ns) place->last = step; /* the other rank sees it when its kernel has met ours */
    launch(compute, own);
    launch_meeting(collective, place->arrived[rank], place->arrived[!rank], step, own);
    CHECK(cuStreamSynchronize(own));
  } while (step != place->last);
  tell("steps_per_s", step * 1e9 / (double)(now_ns() - begin_ns));
  finish();
  return 0;
}
