# The image of the manager, the mover and the witness: static binaries and the certificates to trust, nothing else.
# `make image` makes the same without a container engine.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY controllers controllers
COPY pkg pkg
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o /out/ ./cmd/manager ./cmd/mover ./cmd/witness

FROM scratch
# Public certificate authorities, for stores that name no CA bundle of their own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
# The manager. Jobs choose the user that their volumes need.
USER 65532:65532
ENTRYPOINT ["/manager"]
