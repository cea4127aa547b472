.PHONY: pin-images
pin-images: install  ## write the digests of all images into the manifests, as their registries give them (needs skopeo)
	$(BIN)/python manifests/images/pin.py
