/* Pages with anything in them: a control page that an agent of another mind wrote, a usage page that its tenant filled
 * with noise, before the process looks at them and while it uses them.
 *
 * Nothing crashes, nothing hangs; what is no control page gives no memory; and whatever the usage page says, no single
 * request gets more than the limit.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cuda_abi.h"
#include "slice.h"

#define PATCHES 16
#define LIVE 4

static aq_control_page good_control;
static aq_usage_page good_usage;

static void patch(input *in, void *page, size_t size) {
  size_t offset = next_word(in) % size, count = 1u + next_byte(in) % 16;
  for (size_t i = 0; i < count && offset + i < size; i++) ((uint8_t *)page)[offset + i] = next_byte(in);
}

static void patch_some(input *in, void *page, size_t size) {
  for (int count = next_byte(in) % PATCHES; count > 0; count--) patch(in, page, size);
}

/* Whether the page is one that an interceptor of this version can use at all. */
static bool is_control(const aq_control_page *page) {
  return page->magic == good_control.magic && page->version == good_control.version && page->size >= AQ_CONTROL_SIZE &&
         page->card_count <= AQ_MAX_CARDS && page->enforcement <= AQ_ENFORCE_ENFORCE && !(page->sequence & 1);
}

static void use(input *in, bool usable) {
  CUdeviceptr live[LIVE] = {0};
  size_t available, total;
  for (int i = 0; i < 2 * LIVE && (in->left || i < LIVE); i++) {
    size_t bytes = (size_t)(next_byte(in) + 1) * MIB;
    CUdeviceptr *block = &live[i % LIVE];
    if (*block) CALL("cuMemFree_v2", (CUdeviceptr), *block);
    *block = 0;
    int status = i % 2 ? CALL("cuMemAllocAsync", (CUdeviceptr *, size_t, void *), block, bytes, NULL)
                       : CALL("cuMemAlloc_v2", (CUdeviceptr *, size_t), block, bytes);
    uint64_t limit = slice_control()->cards[0].memory_limit;
    bool strict = slice_control()->enforcement == AQ_ENFORCE_ENFORCE;
    PROMISE(usable || status, "%zu bytes without limits that can be read", bytes);
    PROMISE(!strict || status || bytes <= limit, "%zu bytes of %llu", bytes, (unsigned long long)limit);
    CALL("cuMemGetInfo_v2", (size_t *, size_t *), &available, &total);
    PROMISE(available <= total, "%zu free of %zu", available, total);
    patch_some(in, slice_usage(), sizeof(aq_usage_page));
  }
  for (int i = 0; i < LIVE; i++)
    if (live[i]) CALL("cuMemFree_v2", (CUdeviceptr), live[i]);
  CALL("cuCtxSynchronize", (void));
}

static void start_over(void) {
  memcpy(slice_control(), &good_control, sizeof good_control);
  memcpy(slice_usage(), &good_usage, sizeof good_usage);
  slice_forget();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, size};
  slice_open();
  if (!good_control.magic) {
    good_control = *slice_control();
    good_usage = *slice_usage();
    memset(good_usage.slots, 0, sizeof good_usage.slots);
  }
  start_over();
  patch_some(&in, slice_control(), sizeof(aq_control_page));
  patch_some(&in, slice_usage(), sizeof(aq_usage_page));
  use(&in, is_control(slice_control()));
  start_over();
  return 0;
}
