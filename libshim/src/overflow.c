/* Charged to the host's entry of the card in the pages (AQ_OVERFLOW_CARDS), so that it survives crashes like all charges.
 * Advice keeps it where it is: preferred on the host, accessed by the device. Where the driver takes no advice, nothing
 * overflows, because it would crowd the card.
 * SPDX-License-Identifier: Apache-2.0 */
#include "overflow.h"

#include "advice.h"
#include "allowance.h"
#include "cards.h"
#include "ledger.h"
#include "memory.h"
#include "returning.h"

static bool any; /* relaxed: whoever asks about an address was given it first */

static bool is_allowed(int card, uint64_t bytes) {
  const uint32_t both = AQ_CARD_BURST | AQ_CARD_OVERFLOW_HOST;
  if (card < 0 || card >= AQ_OVERFLOW_CARDS || bytes > AQ_MEMORY_MAX) return false;
  if ((__atomic_load_n(&aq_slice.control->cards[card].flags, __ATOMIC_RELAXED) & both) != both) return false;
  aq_allowance terms = aq_allowance_of(card);
  uint64_t used = aq_allowance_in_use(&terms, aq_ledger_used(aq_slice.usage, card));
  return bytes <= terms.limit && used <= terms.limit - bytes;
}

/* Before the driver frees it, or the mark of what is given the same address next would go. */
static CUresult release(CUdeviceptr address) {
  aq_block marked;
  bool had = aq_blocks_take(AQ_BLOCK_OVERFLOW, address, &marked);
  CUresult result = AQ_CUDA(cuMemFree_v2)(address);
  if (had && result != CUDA_SUCCESS) aq_blocks_put(&marked);
  return result;
}

static void free_memory(uint64_t key) { release(key); }

/* For as long as the driver has it, also after the program has freed it in stream order. */
static bool mark(CUdeviceptr address) {
  CUcontext context = NULL;
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(&context);
  __atomic_store_n(&any, true, __ATOMIC_RELAXED);
  return aq_blocks_put(&(aq_block){.key = address, .charge = {.card = AQ_NO_CARD}, .kind = AQ_BLOCK_OVERFLOW, .context = context});
}

static CUresult allocate(CUdevice device, uint64_t bytes, CUdeviceptr *dptr, const aq_charge *charge) {
  CUresult result = AQ_CUDA(cuMemAllocManaged)(dptr, bytes, CU_MEM_ATTACH_GLOBAL);
  if (result == CUDA_SUCCESS && !(mark(*dptr) && aq_advise_host(*dptr, bytes, device))) {
    free_memory(*dptr);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_block block = {.key = result == CUDA_SUCCESS ? *dptr : 0, .charge = *charge, .kind = AQ_BLOCK_MEMORY};
  return aq_memory_keep(result, &block, free_memory);
}

CUresult aq_overflow_allocate(CUdevice device, uint64_t bytes, CUdeviceptr *dptr) {
  aq_charge charge;
  int card = aq_tenant_mode() == AQ_GUARD ? aq_card_of_device(device) : AQ_NO_CARD;
  bool able = dptr && AQ_CUDA(cuMemAllocManaged) && AQ_CUDA(cuMemFree_v2);
  if (able && is_allowed(card, bytes) && aq_quota_take_entry(AQ_OVERFLOW_CARDS + card, bytes, &charge))
    return allocate(device, bytes, dptr, &charge);
  aq_quota_refused(device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool aq_overflow_has(CUdeviceptr address) {
  aq_block block;
  CUdeviceptr base = 0;
  if (!__atomic_load_n(&any, __ATOMIC_RELAXED) || !AQ_CUDA(cuPointerGetAttribute)) return false;
  if (AQ_CUDA(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address)) return false;
  return aq_blocks_get(AQ_BLOCK_OVERFLOW, base, &block);
}

CUresult aq_overflow_free(const aq_block *block) {
  CUresult result = release(block->key);
  if (result == CUDA_SUCCESS) aq_quota_give(&block->charge);
  else aq_blocks_put(block);
  return result;
}

/* With its own context it has gone; when the stream was of another one, it stays, and nobody frees it. */
static void release_then(uint64_t address, bool lives) {
  if (lives) release(address);
}

/* Not by the driver's own free in stream order, which is for memory of its pools. */
CUresult aq_overflow_free_in_order(const aq_block *block, CUstream stream) {
  if (aq_return_later(&block->charge, (aq_ending){.call = release_then, .with = block->key}, stream)) return CUDA_SUCCESS;
  CUresult result = AQ_CUDA(cuStreamSynchronize) ? AQ_CUDA(cuStreamSynchronize)(stream) : CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_SUCCESS) return aq_overflow_free(block);
  aq_blocks_put(block);
  return result;
}
