/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_image.h"

#include <stddef.h>

const struct scout__cuda_image scout__cuda_images[] = {
#include "cuda_kernel_image.inc"
};

const struct scout__cuda_image *
scout__cuda_image_for(const struct scout__cuda_image *images, int major, int minor)
{
	const struct scout__cuda_image *best = NULL;

	for (; images->major != 0; images++)
		if (images->major == major && images->minor <= minor && (!best || images->minor > best->minor))
			best = images;
	return best ? best : images;
}
