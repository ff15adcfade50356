/* A CUDA program driven line by line, so that a test can be written as a conversation.
 *
 *   NAME ARG…       looks NAME up with dlsym in libcuda.so.1 and calls it; answers "STATUS OUT…"
 *                   NAME:VERSION:FLAGS is looked up with cuGetProcAddress_v2
 *                   ARG: a number; & for 8 bytes of output (zero before); # for 64, answered last in hex; x… for bytes in
 *                   hex; s… for a string
 *   .thread NAME …  the same in a thread of its own, under the calling thread's context
 *   .dlsym NAME     where the answer lies: "FILE SYMBOL", or "-"
 *   .default NAME, .next NAME, .dlvsym NAME VERSION   the same for RTLD_DEFAULT, RTLD_NEXT and dlvsym
 *   .gpa SYMBOL VERSION FLAGS, .gpa1 …                the same for cuGetProcAddress_v2 and cuGetProcAddress: "STATUS QUERY FILE SYMBOL"
 *   .send SOCKET FILE, .receive SOCKET   pass a file to another process; the second answers its number there
 *   .ipc NAME HEX   opens legacy IPC's handle, which is passed by value: "STATUS ADDRESS"
 *   .fork           a child goes on with the conversation until .exit; then the parent does
 *   .exec           the same process, a new program
 *   .exit           the end, by _exit; .return: the same by exit, as from main
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS 12

typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t);

typedef struct {
  function target;
  uint64_t arguments[ARGUMENTS];
  uint64_t outputs[ARGUMENTS];
  int count, output_count;
  char bytes[ARGUMENTS][512];
  const char *hex; /* an output of 64 bytes */
  void *context;
  int status;
} call;

static void *driver;

static uint64_t parse_argument(call *c, const char *text) {
  char *bytes = c->bytes[c->count];
  if (text[0] == '&') {
    c->outputs[c->output_count] = 0;
    return (uintptr_t)&c->outputs[c->output_count++];
  }
  if (text[0] == '#') {
    c->hex = bytes;
    return (uintptr_t)bytes;
  }
  if (text[0] == 's') return (uintptr_t)strcpy(bytes, text + 1);
  if (text[0] != 'x') return strtoull(text, NULL, 0);
  for (size_t i = 0; text[1 + 2 * i]; i++) {
    unsigned value;
    sscanf(text + 1 + 2 * i, "%2x", &value);
    bytes[i] = (char)value;
  }
  return (uintptr_t)bytes;
}

static void make_call(call *c) {
  uint64_t *a = c->arguments;
  c->status = c->target(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

static void *run_thread(void *data) {
  call *c = data;
  int (*set)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
  if (set(c->context) == 0) make_call(c);
  return NULL;
}

static void *find(const char *name) {
  char symbol[64];
  unsigned version, flags;
  int query;
  void *found = NULL;
  if (sscanf(name, "%63[^:]:%u:%u", symbol, &version, &flags) != 3) return dlsym(driver, name);
  int (*ask)(const char *, void **, int, uint64_t, int *) =
      (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
  return ask(symbol, &found, (int)version, flags, &query) == 0 ? found : NULL;
}

static void call_function(const char *name, char **save, int threaded) {
  static call c;
  memset(&c, 0, sizeof c);
  c.target = (function)find(name);
  if (!c.target) {
    printf("- %s\n", name);
    return;
  }
  for (char *text; c.count < ARGUMENTS && (text = strtok_r(NULL, " \n", save)); c.count++)
    c.arguments[c.count] = parse_argument(&c, text);
  if (threaded) {
    pthread_t thread;
    int (*get)(void **) = (int (*)(void **))dlsym(driver, "cuCtxGetCurrent");
    get(&c.context);
    pthread_create(&thread, NULL, run_thread, &c);
    pthread_join(thread, NULL);
  } else {
    make_call(&c);
  }
  printf("%d", c.status);
  for (int i = 0; i < c.output_count; i++) printf(" %llu", (unsigned long long)c.outputs[i]);
  if (c.hex) printf(" ");
  for (int i = 0; c.hex && i < 64; i++) printf("%02x", (unsigned char)c.hex[i]);
  printf("\n");
}

static void print_place(const void *address) {
  Dl_info info;
  if (!address || !dladdr(address, &info)) {
    printf("-\n");
    return;
  }
  const char *file = strrchr(info.dli_fname, '/');
  printf("%s %s\n", file ? file + 1 : info.dli_fname, info.dli_sname ? info.dli_sname : "?");
}

static void print_proc_address(const char *entry, char **save) {
  void *found = NULL;
  int query = -1;
  int (*ask)(const char *, void **, int, uint64_t, int *) =
      (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, entry);
  const char *symbol = strtok_r(NULL, " \n", save);
  int version = atoi(strtok_r(NULL, " \n", save));
  uint64_t flags = strtoull(strtok_r(NULL, " \n", save), NULL, 0);
  int status = ask(symbol, &found, version, flags, &query);
  printf("%d %d ", status, query);
  print_place(found);
}

static void fork_conversation(void) {
  fflush(stdout);
  pid_t child = fork();
  if (child > 0) waitpid(child, NULL, 0);
  printf(child ? "parent\n" : "child\n");
}

static void send_file(int over, int file) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  memcpy(CMSG_DATA(header), &file, sizeof file);
  printf("%d\n", sendmsg(over, &message, 0) == 1 ? 0 : -1);
}

static void receive_file(int over) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  int file = -1;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (recvmsg(over, &message, 0) == 1 && CMSG_FIRSTHDR(&message)) memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  printf("%d\n", file);
}

typedef struct {
  char bytes[64];
} ipc_handle;

static void open_ipc(const char *name, const char *hex) {
  uint64_t address = 0;
  ipc_handle handle;
  int (*open)(uint64_t *, ipc_handle, unsigned) = (int (*)(uint64_t *, ipc_handle, unsigned))dlsym(driver, name);
  for (int i = 0; i < 64; i++) {
    unsigned value = 0;
    sscanf(hex + 2 * i, "%2x", &value);
    handle.bytes[i] = (char)value;
  }
  int status = open(&address, handle, 1);
  printf("%d %llu\n", status, (unsigned long long)address);
}

static void command(const char *name, char **save, char *program) {
  const char *argument = strcmp(name, ".fork") && strcmp(name, ".exec") && strncmp(name, ".gpa", 4) ? strtok_r(NULL, " \n", save) : NULL;
  if (!strcmp(name, ".thread")) call_function(argument, save, 1);
  if (!strcmp(name, ".dlsym")) print_place(dlsym(driver, argument));
  if (!strcmp(name, ".default")) print_place(dlsym(RTLD_DEFAULT, argument));
  if (!strcmp(name, ".next")) print_place(dlsym(RTLD_NEXT, argument));
  if (!strcmp(name, ".dlvsym")) print_place(dlvsym(driver, argument, strtok_r(NULL, " \n", save)));
  if (!strcmp(name, ".gpa")) print_proc_address("cuGetProcAddress_v2", save);
  if (!strcmp(name, ".gpa1")) print_proc_address("cuGetProcAddress", save);
  if (!strcmp(name, ".send")) send_file(atoi(argument), atoi(strtok_r(NULL, " \n", save)));
  if (!strcmp(name, ".ipc")) open_ipc(argument, strtok_r(NULL, " \n", save));
  if (!strcmp(name, ".receive")) receive_file(atoi(argument));
  if (!strcmp(name, ".fork")) fork_conversation();
  if (!strcmp(name, ".return")) exit(0);
  if (!strcmp(name, ".exec")) execl(program, program, NULL);
}

int main(int argc, char **argv) {
  char line[4096];
  (void)argc;
  setvbuf(stdin, NULL, _IONBF, 0); /* what comes next may be for another program, or a child */
  driver = dlopen("libcuda.so.1", RTLD_NOW | (getenv("GLOBAL_SCOPE") ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!driver) fprintf(stderr, "%s\n", dlerror());
  printf("ready\n");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    char *save = NULL;
    char *name = strtok_r(line, " \n", &save);
    if (!name) continue;
    if (!strcmp(name, ".exit")) break;
    if (name[0] == '.') command(name, &save, argv[0]);
    else call_function(name, &save, 0);
    fflush(stdout);
  }
  fflush(stdout);
  _exit(0);
}
