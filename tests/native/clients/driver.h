/* The driver's functions by a list of them, NAMES(F) with F(name, (parameters)), and calls that have to succeed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define DECLARE(name, parameters) static int(*name) parameters;
#define LOOK_UP(name, parameters) *(void **)&name = dlsym(driver, #name); /* of `driver`, which dlopen gave */

#define MUST(call)                                                                       \
  do {                                                                                   \
    int status = (call);                                                                 \
    if (status) fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, status), exit(1); \
  } while (0)

#endif
