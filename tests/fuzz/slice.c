#include "slice.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blocks.h"
#include "cards.h"
#include "loader.h"
#include "pool.h"
#include "quota.h"
#include "tenant.h"

static void *driver;
static uint64_t resident_at_start;

uint8_t next_byte(input *in) {
  if (!in->left) return 0;
  in->left--;
  return *in->at++;
}

uint64_t next_word(input *in) {
  uint64_t word = 0;
  for (int i = 0; i < 8; i++) word = word << 8 | next_byte(in);
  return word;
}

static void *map_page(const char *variable, size_t size) {
  const char *path = getenv(variable);
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  PROMISE(file >= 0, "%s names no page", variable);
  void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  PROMISE(page != MAP_FAILED, "%s cannot be mapped", path);
  return page;
}

aq_control_page *slice_control(void) {
  static aq_control_page *page;
  if (!page) page = map_page("ALIQUOT_CONTROL_PAGE", sizeof *page);
  return page;
}

aq_usage_page *slice_usage(void) {
  static aq_usage_page *page;
  if (!page) page = map_page("ALIQUOT_USAGE_PAGE", sizeof(aq_usage_file));
  return page;
}

void *slice_function(const char *name) {
  const aq_hook *row = aq_hook_by_symbol(name);
  void *found = row && dlsym(driver, name) ? row->hook : dlsym(driver, name);
  PROMISE(found, "the driver has no %s", name);
  return found;
}

static uint64_t resident(void) {
  size_t available = 0, total = 0;
  int status = AQ_CUDA(cuMemGetInfo_v2)(&available, &total);
  PROMISE(!status, "cuMemGetInfo says %d", status);
  return total - available;
}

uint64_t slice_resident(void) { return resident() - resident_at_start; }

void slice_open(void) {
  void *context = NULL;
  if (driver) return;
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  PROMISE(driver, "no driver: %s", dlerror());
  PROMISE(!CALL("cuInit", (unsigned), 0), "no CUDA");
  PROMISE(!CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0), "no context");
  CALL("cuCtxSetCurrent", (void *), context);
  resident_at_start = resident();
}

void slice_forget(void) {
  aq_quota_forget();
  aq_blocks_forget();
  aq_pools_forget();
  aq_cards_forget();
  aq_tenant_forget();
}
