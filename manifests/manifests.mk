.PHONY: pin-images
pin-images: install  ## write the digests of all images, from their registries, into the manifests (needs skopeo)
	$(BIN)/python manifests/images/pin.py
